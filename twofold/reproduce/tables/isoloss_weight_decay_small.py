"""IsoLoss, Figures 3a and 8 in small: the rows of isoloss-weight-decay for two CPU cores."""

from dataclasses import replace

from twofold.reproduce.table import Setting
from twofold.reproduce.tables.isoloss_weight_decay import TABLE as WHOLE

SMALL = "for a CPU"

TABLE = replace(
    WHOLE,
    name="isoloss-weight-decay-small",
    number="Figures 3a and 8, in small",
    title="eigenvalues of the embeddings: distances and weight decay, a small encoder, 16 pixels",
    epochs=10,
    settings=(
        *(setting for setting in WHOLE.settings if setting.key != "encoder"),
        Setting("encoder", "conv", SMALL),
        Setting("image_size", 16, SMALL),
        Setting("precision", "bf16", SMALL),
    ),
    rows=[row for row in WHOLE.rows if row.name != "IsoLoss, no EMA"],
    findings="",
    differs=(
        *WHOLE.differs[:2],
        "a small convolutional network, images of 16 pixels, 10 epochs, one of which warms up",
    ),
)
