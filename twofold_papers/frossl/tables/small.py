"""FroSSL's loss and its variants at reduced scale: centring, the weight between the terms, no logarithm, views."""

from twofold_papers.reproduce import small
from twofold_papers.reproduce.readings import EFFECTIVE_RANK, FEW_LABELS, KNN, LINEAR, online_at
from twofold_papers.reproduce.table import Row, Setting, Statement, Table

UNIT_TRACE = {"logarithm": False, "unit_trace": True}
WIDTHS = {"projector": (2048, 2048, 1024)}
WEIGHTS = (0.25, 0.5, 2.0, 4.0)
VIEWS = (4, 8)
WEIGHED = ("weight 0.25", "weight 0.5", "FroSSL", "weight 2", "weight 4")

TABLE = Table(
    name="frossl-small",
    paper="frossl",
    number="Sections 3.1 and 6.3",
    title=f"centring, the weight between the terms, no logarithm and more views; {small.TITLE}",
    columns=(online_at(3), online_at(10), online_at(30), LINEAR, FEW_LABELS, KNN, EFFECTIVE_RANK),
    epochs=30,
    data=small.DATA,
    settings=(*small.SETTINGS, Setting("batch_size", 256, "section 6.1")),
    rows=[
        Row("FroSSL", "frossl", WIDTHS),
        Row("not centred", "frossl", WIDTHS | {"centre": False}, note="as in the authors' current code and in lightly"),
        Row("no logarithm, trace 1", "frossl", WIDTHS | UNIT_TRACE, note="as in the authors' code without logarithm"),
        Row("no logarithm", "frossl", WIDTHS | {"logarithm": False}),
        *(Row(f"weight {weight:g}", "frossl", WIDTHS | {"weight": weight}) for weight in WEIGHTS),
        *(Row(f"{views} views", "frossl", WIDTHS | {"views": views}) for views in VIEWS),
        Row("VICReg", "vicreg", {"projector": (2048, 2048, 1024)}),
    ],
    statements=(
        Statement(
            "without the logarithm, FroSSL is worse",
            "section 6.3, Table 2",
            LINEAR,
            "no logarithm",
            "below",
            "FroSSL",
            published="−3.9 (CIFAR-10, ResNet-18, 1000 epochs)",
        ),
    ),
    findings=(
        lambda our: (
            f"If the columns are not centred, linear accuracy is {our.change('not centred', 'FroSSL', LINEAR)}, and "
            f"with 10 labels per class {our.change('not centred', 'FroSSL', FEW_LABELS)}."
        ),
        lambda our: (
            "Without the logarithm but with ZᵀZ divided by its trace, it is "
            f"{our.change('no logarithm, trace 1', 'FroSSL', LINEAR)}, and with 10 labels per class "
            f"{our.change('no logarithm, trace 1', 'FroSSL', FEW_LABELS)}."
        ),
        lambda our: (
            "With the weights 0.25, 0.5, 1, 2 and 4 between the terms, it is "
            f"{', '.join(our.text(name, LINEAR) for name in WEIGHED)} %."
        ),
        lambda our: (
            "With four views instead of two and the same number of steps, it is "
            f"{our.change('4 views', 'FroSSL', LINEAR)}, and with eight {our.change('8 views', 'FroSSL', LINEAR)}."
        ),
    ),
    differs=(
        *small.DIFFERS,
        "The paper does not show its grid search of section 3.1, and uses two views only.",
        "All rows have the same number of steps, so more views take more time.",
    ),
)

DIGITS = Table(
    name="frossl-digits",
    paper="frossl",
    number="Section 6.3",
    title="no logarithm and centring at reduced scale, digits, 8 pixels",
    columns=(LINEAR, FEW_LABELS, KNN, EFFECTIVE_RANK),
    epochs=30,
    data="digits",
    rows=[
        Row("FroSSL", "frossl"),
        Row("not centred", "frossl", {"centre": False}),
        Row("no logarithm, trace 1", "frossl", UNIT_TRACE),
    ],
    findings=(
        lambda our: (
            "With 10 labels per class, linear accuracy is "
            f"{our.change('no logarithm, trace 1', 'FroSSL', FEW_LABELS)} if the logarithm is left out and ZᵀZ is "
            f"divided by its trace, and {our.change('not centred', 'FroSSL', FEW_LABELS)} if the columns are not "
            "centred."
        ),
        lambda our: (
            f"With all labels, it is {our.change('no logarithm, trace 1', 'FroSSL', LINEAR)} and "
            f"{our.change('not centred', 'FroSSL', LINEAR)}."
        ),
    ),
    differs=("The paper does not use these images. The network is a small convolutional network of four layers.",),
)
