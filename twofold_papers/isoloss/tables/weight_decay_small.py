"""IsoLoss, Figures 3a and 8 at reduced scale: the rows of isoloss-weight-decay, for two CPU cores."""

from dataclasses import replace

from twofold_papers.isoloss.tables.weight_decay import STATEMENTS, named, of_decays
from twofold_papers.isoloss.tables.weight_decay import TABLE as FULL
from twofold_papers.reproduce.readings import DISTINCT, LARGEST
from twofold_papers.reproduce.table import Setting

SMALL = "chosen for training on a CPU"
FURTHER = (4e-5, 4e-3)  # weight decays that the paper does not have
NOT_PUBLISHED = "a weight decay that the paper does not have"

TABLE = replace(
    FULL,
    name="isoloss-weight-decay-small",
    number="Figures 3a and 8, at reduced scale",
    title="eigenvalues of the embeddings for both distances and several weight decays, a small encoder, 16 pixels",
    epochs=10,
    settings=(
        *(setting for setting in FULL.settings if setting.key != "encoder"),
        Setting("encoder", "conv", SMALL),
        Setting("image_size", 16, SMALL),
        Setting("precision", "bf16", SMALL),
    ),
    rows=[
        *(row for row in FULL.rows if row.name != "IsoLoss, no EMA"),
        *(replace(row, note=NOT_PUBLISHED) for row in of_decays(*FURTHER)),
    ],
    statements=STATEMENTS,
    findings=(
        lambda our: (
            "From weight decay 4e-5 to 4e-3, DirectPred recruits "
            f"{' and '.join(our.text(named('DirectPred', decay), DISTINCT, '.0f') for decay in FURTHER)} eigenvalues, "
            f"IsoLoss {' and '.join(our.text(named('IsoLoss', decay), DISTINCT, '.0f') for decay in FURTHER)}, and the "
            "largest eigenvalue of IsoLoss falls from "
            f"{' to '.join(our.text(named('IsoLoss', decay), LARGEST, '.0f') for decay in FURTHER)}."
        ),
        lambda our: (
            "With the Euclidean distance, the paper's eigenvalues come close to 1; here the largest are "
            f"{our.text('IsoLoss, Euclidean', LARGEST, '.2f')} (IsoLoss) and "
            f"{our.text('DirectPred, Euclidean', LARGEST, '.2f')} (DirectPred), and the results depend on the "
            "warm-up: with one warm-up epoch, DirectPred diverges and IsoLoss collapses (see Other runs)."
        ),
    ),
    differs=(
        *FULL.differs[:2],
        "The network is a small convolutional network, and images have 16 pixels. We train for 10 epochs. One of "
        "them is a warm-up epoch, or all ten if the row says so.",
    ),
)
