"""S-DIET, Table 5: methods with batch size 256 and the same augmentations."""

from twofold_papers.reproduce.published import Published, published
from twofold_papers.reproduce.readings import KNN, LINEAR, MEMORY
from twofold_papers.reproduce.table import Row, Setting, Statement, Table
from twofold_papers.s_diet.tables.table_1 import APPENDIX, OURS, SETTINGS
from twofold_papers.s_diet.tables.table_3 import PROJECTED

OWN = {setting.key: setting.value for setting in SETTINGS if setting.key in ("optimizer", "lr", "weight_decay")}


BALESTRIERO = "from Balestriero (2023)"


def accuracies(
    cifar10: tuple[float, float],
    cifar100: tuple[float, float],
    imagenet100: float | None,
    tiny_imagenet: float,
    note: str = "",  # of all numbers but those of CIFAR-10
) -> dict[str, list[Published]]:
    """Published linear accuracies. A pair has those of ResNet-18 and ResNet-50; a single number is that of ResNet-50.

    BYOL has none on ImageNet-100, because it ran out of memory.
    """
    larger = {"cifar100": cifar100[1], "tiny-imagenet": tiny_imagenet}
    larger |= {} if imagenet100 is None else {"imagenet100": imagenet100}
    return {
        LINEAR.title: [
            *published({"cifar10": cifar10[0]}, epochs=5000),
            *published({"cifar100": cifar100[0]}, epochs=5000, note=note),
            *published({"cifar10": cifar10[1]}, epochs=5000, encoder="resnet50"),
            *published(larger, epochs=5000, encoder="resnet50", note=note),
        ]
    }


S_DIET_NUMBERS = accuracies((91.48, 93.08), (66.88, 72.34), 80.16, 52.52)

TABLE = Table(
    name="s-diet-5",
    paper="s-diet",
    number="Table 5",
    title="methods with batch size 256 and S-DIET's augmentations, CIFAR-10, ResNet-18",
    columns=(LINEAR, KNN, MEMORY),
    epochs=100,
    settings=(
        *(setting for setting in SETTINGS if setting.key not in OWN),
        Setting("augment.crop_scale", (0.08, 1.0), APPENDIX),
        Setting("augment.flip", 0.5, APPENDIX),
        Setting("augment.brightness", 0.4, APPENDIX),
        Setting("augment.contrast", 0.4, APPENDIX),
        Setting("augment.saturation", 0.4, APPENDIX),
        Setting("augment.hue", 0.1, APPENDIX),
        Setting("augment.blur", 0.0, APPENDIX),
        Setting("augment.solarize", 0.0, APPENDIX),
    ),
    rows=[
        Row("S-DIET", "s-diet", OWN, S_DIET_NUMBERS, probes=PROJECTED),
        Row("S-DIET, 1000 epochs", "s-diet", OWN, S_DIET_NUMBERS, epochs=1000, probes=PROJECTED),
        Row("DIET", "diet", OWN, accuracies((54.64, 89.70), (62.93, 68.96), 73.50, 51.66, BALESTRIERO)),
        Row("SimCLR", "simclr", {}, accuracies((90.00, 91.64), (63.56, 67.90), 79.68, 46.32)),
        Row("SimSiam", "simsiam", {}, accuracies((90.78, 92.42), (65.66, 69.62), 80.12, 40.48)),
        Row("BYOL", "byol", {}, accuracies((90.76, 92.32), (65.26, 68.10), None, 40.72)),
        Row("Barlow Twins", "barlow-twins", {}, accuracies((90.38, 90.62), (66.84, 68.06), 79.52, 45.20)),
    ],
    statements=(
        Statement("S-DIET is better than SimCLR", "section 6.2, Table 5", LINEAR, "S-DIET", "above", "SimCLR"),
        Statement(
            "S-DIET is better than Barlow Twins", "section 6.2, Table 5", LINEAR, "S-DIET", "above", "Barlow Twins"
        ),
        Statement("S-DIET is better than DIET", "section 6.2, Table 5", LINEAR, "S-DIET", "above", "DIET"),
        Statement(
            "DIET fails with its default settings: it is far below SimCLR",
            "section 6.2",
            LINEAR,
            "DIET",
            "below",
            "SimCLR",
            by=30.0,
        ),
        Statement(
            "S-DIET needs less memory than SimCLR", "section 6.2", MEMORY, "S-DIET", "below", "SimCLR", least=50.0
        ),
    ),
    findings=(
        lambda our: (
            f"S-DIET may need the paper's 5000 epochs, because it uses one view and one class for each image: "
            f"after 100 epochs it has {our.text('S-DIET', LINEAR)} %."
        ),
    ),
    differs=(
        "The paper uses 32-bit precision for all methods.",
        "The paper does not give the probabilities of jitter and grayscale. We use 0.8 and 0.2.",
        *OURS,
    ),
)
