"""Methods that are clearly below the others of their family after 30 epochs: longer, or with a quicker teacher."""

from twofold.reproduce.readings import EFFECTIVE_RANK, KNN, LINEAR, ONLINE
from twofold.reproduce.table import Row, Table

TABLE = Table(
    name="catalog-longer",
    paper="twofold",
    number="Slow starters",
    title="methods that are below their family after 30 epochs, CIFAR-10, ResNet-18",
    columns=(LINEAR, KNN, ONLINE, EFFECTIVE_RANK),
    epochs=100,
    rows=[
        Row("dino, soft targets", "dino", {"first_target_temperature": 0.07}, epochs=30, note="no rising temperature"),
        Row("dino, teacher_momentum=0.99", "dino", {"teacher_momentum": 0.99}, epochs=30),
        Row("spectral-contrastive", "spectral-contrastive"),
        Row("barlow-twins", "barlow-twins"),
        Row("dino", "dino"),
        Row("swav", "swav"),
        Row("simsiam", "simsiam"),
    ],
)
