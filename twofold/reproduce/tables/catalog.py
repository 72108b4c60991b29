"""Every method of the catalog with its defaults, 30 epochs: ours alone, there is nothing in print to set beside it."""

from twofold.methods import CATALOG
from twofold.reproduce.readings import EFFECTIVE_RANK, KNN, LINEAR, ONLINE
from twofold.reproduce.table import Row, Table

TABLE = Table(
    name="catalog",
    paper="twofold",
    number="All methods",
    title="every method with its defaults, CIFAR-10, ResNet-18",
    columns=(LINEAR, KNN, ONLINE, EFFECTIVE_RANK),
    epochs=30,
    rows=[Row(method, method) for method in CATALOG],
)
