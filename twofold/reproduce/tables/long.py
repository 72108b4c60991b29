"""The end of the curve: a thousand epochs, as FroSSL's Table 2 has them."""

from twofold.reproduce.readings import KNN, LINEAR, ONLINE
from twofold.reproduce.table import Printed, Row, Setting, Table
from twofold.reproduce.tables.frossl_online import METHODS

# Of FroSSL's Table 2, CIFAR-10, 1000 epochs.
IN_PRINT = {
    "FroSSL": 92.8,
    "MoCo v2": 92.9,
    "BYOL": 92.6,
    "CorInfoMax": 92.6,
    "VICReg": 92.1,
    "Barlow Twins": 92.1,
    "SimCLR": 91.8,
    "W-MSE": 91.6,
    "SimSiam": 90.5,
    "DINO": 89.5,
    "SwAV": 89.2,
    "FroSSL, no logarithm": 88.9,
}

TABLE = Table(
    name="long",
    paper="frossl",
    number="Table 2",
    title="1000 epochs, CIFAR-10, ResNet-18",
    columns=(LINEAR, KNN, ONLINE),
    epochs=1000,
    settings=(
        Setting("batch_size", 256, "section 6.1: 256 for all methods"),
        Setting("encoder", "resnet18", "section 6.1"),
    ),
    rows=[Row(name, *METHODS[name], {LINEAR.title: [Printed(value, epochs=1000)]}) for name, value in IN_PRINT.items()],
    differs=("most published numbers are solo-learn's, whose probe is trained by SGD for 100 epochs",),
)
