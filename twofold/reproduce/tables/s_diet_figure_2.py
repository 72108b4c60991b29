"""S-DIET, Figure 2: maps of the embeddings of S-DIET and of SimCLR."""

from twofold.reproduce.readings import KNN, LINEAR
from twofold.reproduce.table import Row, Table

TABLE = Table(
    name="s-diet-figure-2",
    paper="s-diet",
    number="Figure 2",
    title="t-SNE of features, CIFAR-10, ResNet-18",
    columns=(LINEAR, KNN),
    epochs=30,
    maps=True,
    rows=[Row("S-DIET", "s-diet"), Row("SimCLR", "simclr")],
    differs=(
        "ours with ResNet-18, each method's defaults and 30 epochs, 1,000 images of which a part is held out; the "
        "paper with ResNet-50, test images",
    ),
)
