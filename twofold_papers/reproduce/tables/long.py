"""Training for 1000 epochs, as in FroSSL's Table 2."""

from twofold_papers.frossl.tables.online import METHODS
from twofold_papers.reproduce.curves import ACCURACY
from twofold_papers.reproduce.published import Published, published
from twofold_papers.reproduce.readings import KNN, LINEAR, ONLINE
from twofold_papers.reproduce.table import Row, Setting, Statement, Table

# Numbers of FroSSL's Table 2: CIFAR-10 and CIFAR-100 after 1000 epochs, STL-10 after 500. CorInfoMax does not converge
# on STL-10.
PUBLISHED = {
    "FroSSL": (92.8, 70.6, 87.3),
    "MoCo v2": (92.9, 69.9, 83.2),
    "BYOL": (92.6, 70.5, 88.7),
    "CorInfoMax": (92.6, 69.7, None),
    "VICReg": (92.1, 68.5, 85.9),
    "Barlow Twins": (92.1, 70.9, 85.0),
    "SimCLR": (91.8, 65.8, 85.9),
    "W-MSE": (91.6, 66.1, 72.4),
    "SimSiam": (90.5, 66.0, 88.5),
    "DINO": (89.5, 66.8, 78.9),
    "SwAV": (89.2, 64.9, 82.6),
    "FroSSL, no logarithm": (88.9, 62.3, 82.4),
}


def accuracies(cifar10: float, cifar100: float, stl10: float | None) -> dict[str, list[Published]]:
    on_stl10 = [] if stl10 is None else published({"stl10": stl10}, epochs=500)
    return {LINEAR.title: published({"cifar10": cifar10, "cifar100": cifar100}, epochs=1000) + on_stl10}


# How solo-learn differs from Twofold for every method. The authors of FroSSL and IsoLoss started from its code.
SOLO_LEARN = (
    "The solo-learn library resizes crops with a bicubic kernel, Twofold with a bilinear one "
    "(`augment.interpolation`).",
    "In solo-learn, a crop is cut out before it is resized. Twofold includes pixels beyond the border of the crop, "
    "as far as the kernel reaches, like Pillow's `resize(box=…)`.",
    "In solo-learn's ResNet, the first convolution has a padding of two pixels, so the feature maps are 34, 17, 9 "
    "and 5 pixels wide (`stem=small-padded`). Ours are 32, 16, 8 and 4 pixels wide.",
)
BICUBIC, PADDED = {"augment.interpolation": "bicubic"}, {"stem": "small-padded"}

TABLE = Table(
    name="long",
    paper="frossl",
    number="Table 2",
    title="1000 epochs, CIFAR-10, ResNet-18",
    columns=(LINEAR, KNN, ONLINE),
    epochs=1000,
    figures=(ACCURACY,),
    settings=(
        Setting("batch_size", 256, "section 6.1: 256 for all methods"),
        Setting("encoder", "resnet18", "section 6.1"),
    ),
    rows=[
        *(Row(name, *METHODS[name], accuracies(*numbers)) for name, numbers in PUBLISHED.items()),
        # The effect of two of the differences from solo-learn, in a tenth of the time.
        Row("VICReg, short", "vicreg", epochs=100),
        Row("VICReg, short, bicubic crops", "vicreg", BICUBIC, epochs=100),
        Row("VICReg, short, padded stem", "vicreg", PADDED, epochs=100),
        Row("VICReg, short, both", "vicreg", BICUBIC | PADDED, epochs=100),
    ],
    statements=(
        Statement("FroSSL is better than VICReg", "Table 2", LINEAR, "FroSSL", "above", "VICReg", least=0.3),
        Statement(
            "without the logarithm, FroSSL is worse",
            "section 6.3, Table 2",
            LINEAR,
            "FroSSL, no logarithm",
            "below",
            "FroSSL",
        ),
        Statement("the accuracy of VICReg", "Table 2", LINEAR, "VICReg", "equal", by=0.5),
    ),
    findings=(
        lambda our: (
            "The online classifier of VICReg has "
            f"{our.text('VICReg', ONLINE)} %, so the way in which features are evaluated is not the reason for a "
            "difference."
        ),
        lambda our: (
            f"After 100 epochs, VICReg has {our.text('VICReg, short', LINEAR)} %; with bicubic crops it has "
            f"{our.text('VICReg, short, bicubic crops', LINEAR)} % and with the padded stem "
            f"{our.text('VICReg, short, padded stem', LINEAR)} %."
        ),
        "We think that solo-learn's sharper crops and larger last feature maps are the reason; the rows of 100 epochs "
        "test this.",
    ),
    differs=(
        "Most published numbers are those of solo-learn, whose probe is trained by SGD for 100 epochs.",
        *SOLO_LEARN,
    ),
)
