"""S-DIET, Table 4: features before and after the projector."""

from twofold_papers.reproduce.published import Published, published
from twofold_papers.reproduce.readings import LINEAR, probed
from twofold_papers.reproduce.table import Row, Statement, Table
from twofold_papers.s_diet.tables.table_1 import OURS, SETTINGS
from twofold_papers.s_diet.tables.table_3 import PROJECTED

AFTER = probed("projected", "linear accuracy, after the projector, %")


def accuracies(before: float, after: float, encoder: str) -> dict[str, list[Published]]:
    by_column = {LINEAR.title: before, AFTER.title: after}
    return {title: published({"cifar100": value}, epochs=5000, encoder=encoder) for title, value in by_column.items()}


TABLE = Table(
    name="s-diet-4",
    paper="s-diet",
    number="Table 4",
    title="features before and after the projector",
    columns=(LINEAR, AFTER),
    epochs=100,
    settings=SETTINGS,
    rows=[
        Row("ResNet-18", "s-diet", {"normalize": True}, accuracies(66.88, 63.46, "resnet18"), probes=PROJECTED),
        Row(
            "ResNet-50",
            "s-diet",
            {"normalize": True, "encoder": "resnet50"},
            accuracies(72.34, 67.60, "resnet50"),
            probes=PROJECTED,
        ),
    ],
    statements=tuple(
        Statement(
            f"with {encoder}, features before the projector are better",
            "section 6.1.2, Table 4",
            LINEAR,
            encoder,
            "above",
            other_column=AFTER,
        )
        for encoder in ("ResNet-18", "ResNet-50")
    ),
    differs=(
        "We use CIFAR-10 and 100 epochs. The paper uses CIFAR-100 and 5000 epochs.",
        *OURS,
    ),
)
