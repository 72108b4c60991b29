"""S-DIET at reduced scale: Table 1 with the paper's own loss, and the paper's update of the classifier rows."""

from twofold_papers.reproduce import small
from twofold_papers.reproduce.readings import EFFECTIVE_RANK, KNN, LINEAR, UNCENTRED
from twofold_papers.reproduce.table import Probe, Row, Setting, Statement, Table
from twofold_papers.s_diet.tables.table_1 import FULL_CROSS_ENTROPY, MASKED, SETTINGS, accuracies

PROBES = (Probe("masked", data="mnist-on-cifar-5k-masked"),)
SHARED = tuple(setting for setting in SETTINGS if setting.key != "encoder")
WIDTHS = {"projector": (512, 512, 256)}
NORMALISED, PLAIN = accuracies(83.9, 84.06), accuracies(13.76, 43.56)

TABLE = Table(
    name="s-diet-1-small",
    paper="s-diet",
    number="Table 1 and Figure 1c, at reduced scale",
    title="MNIST-on-CIFAR with full cross entropy and squared error, with and without normalisation; a small "
    "convolutional encoder, 16 pixels, 5,000 training images",
    columns=(LINEAR, MASKED, UNCENTRED, EFFECTIVE_RANK),
    epochs=100,
    data="mnist-on-cifar-5k",
    settings=(*SHARED, *small.SETTINGS),
    rows=[
        Row("DIET, normalised", "diet", WIDTHS | {"normalize": True}, NORMALISED, probes=PROBES),
        Row("DIET", "diet", WIDTHS, PLAIN, probes=PROBES),
        Row("DIET, no projector, normalised", "diet", {"normalize": True}, probes=PROBES),
        Row("DIET, no projector", "diet", probes=PROBES),
        Row("MSE-DIET, normalised", "mse-diet", WIDTHS | {"normalize": True}, probes=PROBES),
        Row("MSE-DIET", "mse-diet", WIDTHS, probes=PROBES),
        Row("S-DIET, normalised", "s-diet", WIDTHS | {"normalize": True}, probes=PROBES),
        Row("S-DIET, not normalised", "s-diet", WIDTHS | {"normalize": False}, probes=PROBES),
    ],
    statements=(
        *FULL_CROSS_ENTROPY,
        Statement(
            "with full cross entropy, there are fewer distinct features without normalisation",
            "section 6.1.1, Figure 1c",
            UNCENTRED,
            "DIET",
            "below",
            "DIET, normalised",
            least=24.0,
            published="under 100 and over 200 (CIFAR-100)",
        ),
    ),
    findings=(
        lambda our: (
            "With a masked digit, linear accuracy after training with normalisation is "
            f"{our.change('DIET, no projector, normalised', 'DIET, no projector', MASKED)} for DIET without a "
            f"projector and {our.change('MSE-DIET, normalised', 'MSE-DIET', MASKED)} for MSE-DIET."
        ),
    ),
    differs=(
        "The network is a small convolutional network of four layers, and images have 16 pixels. We train on the first "
        "500 training images of each class of CIFAR-10 with digits, and test on all test images.",
        "We train for 100 epochs, the paper for 500.",
        "We chose which digit belongs to which image, how it is enlarged, and how often it is blurred.",
        "The paper does not say whether its rows have a projector. We show both.",
    ),
)

UPDATES = Table(
    name="s-diet-update-small",
    paper="s-diet",
    number="Section 5.2.2",
    title=f"how classifier rows outside the batch are updated; {small.TITLE}",
    columns=(LINEAR, KNN, EFFECTIVE_RANK),
    epochs=100,
    data=small.DATA,
    settings=(*SHARED, *small.SETTINGS, Setting("projector", (512, 512, 256), small.REASON)),
    rows=[
        Row("exact", "s-diet", {"head.update": "exact"}, note="as if AdamW updated every row at every step"),
        Row(
            "multistep", "s-diet", {"head.update": "multistep"}, note="the paper: by the steps of a whole epoch at once"
        ),
    ],
    findings=(
        lambda our: (
            "With the paper's update instead of the exact one, linear accuracy is "
            f"{our.change('multistep', 'exact', LINEAR)} and kNN accuracy {our.change('multistep', 'exact', KNN)}."
        ),
    ),
    differs=small.DIFFERS,
)
