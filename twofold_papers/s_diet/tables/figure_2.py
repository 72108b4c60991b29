"""S-DIET, Figure 2: maps of the embeddings of S-DIET and of SimCLR."""

from dataclasses import replace

from twofold_papers.reproduce.maps import side_by_side
from twofold_papers.reproduce.readings import KNN, LINEAR
from twofold_papers.reproduce.table import Figure, Table
from twofold_papers.s_diet.tables.table_5 import TABLE as METHODS

TABLE = Table(
    name="s-diet-figure-2",
    paper="s-diet",
    number="Figure 2",
    title="t-SNE of features, CIFAR-10, ResNet-18",
    columns=(LINEAR, KNN),
    epochs=METHODS.epochs,
    settings=METHODS.settings,
    figures=(Figure("maps", "map", side_by_side),),
    rows=[replace(row, printed={}) for row in METHODS.rows if row.name in ("S-DIET", "SimCLR")],
    findings=(
        "That both have the same structure at large, as the paper says, is seen: vehicles at one end and animals at "
        "the other, frogs and horses by themselves, cats beside dogs. At small they differ after 100 epochs: most of "
        "SimCLR's classes have regions of their own, and cats share one with dogs; of S-DIET's birds, cats, dogs and "
        "deer are mixed, which is what the accuracies say, ten points of a linear classifier apart and fifteen of kNN."
    ),
    differs=(
        "ours the runs of Table 5, with ResNet-18 and 100 epochs, 1,000 images of which a part is held out; the paper "
        "with ResNet-50, test images",
        *METHODS.differs,
    ),
)
