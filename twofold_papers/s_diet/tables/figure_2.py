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
    rows=[replace(row, published={}) for row in METHODS.rows if row.name in ("S-DIET", "SimCLR")],
    findings=(
        "Both maps have the same coarse structure, as the paper states: vehicles are at one end and animals at the "
        "other, frogs and horses form separate groups, and cats are next to dogs.",
        lambda our: (
            "The fine structure differs: S-DIET mixes birds, cats, dogs and deer, and it is "
            f"{our.apart('S-DIET', 'SimCLR', LINEAR)} SimCLR in linear accuracy and "
            f"{our.apart('S-DIET', 'SimCLR', KNN)} in kNN accuracy."
        ),
    ),
    differs=(
        "We show runs of Table 5 with ResNet-18 and 100 epochs, and 1,000 images, some of which are held out. The "
        "paper shows ResNet-50 and test images.",
        *METHODS.differs,
    ),
)
