"""FroSSL, appendix C: the projector's dimension and the batch size."""

from twofold.reproduce.readings import EFFECTIVE_RANK, LINEAR
from twofold.reproduce.table import Row, Setting, Table

TABLE = Table(
    name="frossl-appendix-c",
    paper="frossl",
    number="Appendix C",
    title="the projector's dimension, and the batch size",
    columns=(LINEAR, EFFECTIVE_RANK),
    epochs=30,
    settings=(
        Setting("encoder", "resnet18", "section 6.1"),
        Setting("optimizer", "lars", "section 6.1"),
        Setting("lr", 0.3, "section 6.1"),
        Setting("weight_decay", 1e-6, "section 6.1"),
    ),
    rows=[
        *(
            Row(f"D = {dimension}", "frossl", {"projector": (2048, 2048, dimension)})
            for dimension in (128, 256, 512, 1024, 2048)
        ),
        *(Row(f"batch {size}", "frossl", {"batch_size": size}) for size in (64, 128, 512, 1024)),
    ],
    differs=(
        "the appendix has pictures and no numbers: the values of D and of the batch are ours, and there is nothing to "
        "set beside the results",
        "the learning rate follows the batch size",
    ),
)
