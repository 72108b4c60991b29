"""S-DIET and DIET beside SimCLR and FroSSL: after as many epochs, and after as many minutes."""

from twofold_papers.reproduce.readings import KNN, LINEAR, MINUTES
from twofold_papers.reproduce.table import Row, Table
from twofold_papers.s_diet.tables.table_3 import PROJECTED

TABLE = Table(
    name="s-diet-minutes",
    paper="s-diet",
    number="Ours",
    title="the same epochs and the same minutes, each method with its defaults, CIFAR-10, ResNet-18",
    columns=(LINEAR, KNN, MINUTES),
    epochs=100,
    rows=[
        Row("S-DIET", "s-diet", probes=PROJECTED),
        Row("DIET", "diet"),
        Row("SimCLR", "simclr"),
        Row("FroSSL", "frossl"),
        Row("S-DIET, as long as FroSSL", "s-diet", epochs=165, probes=PROJECTED),
    ],
    findings=(
        "With one seed: after the same epochs S-DIET is ahead of DIET, by nine points of a linear classifier and by "
        "two of kNN; they take the same time, but for the compiling in S-DIET's, the first run of its process (an "
        "earlier one of it took 87 s). SimCLR and FroSSL, with two views, are ahead of both after as many epochs, and "
        "still ahead where S-DIET gets as many minutes."
    ),
    differs=(
        "nothing in print; the epochs of the last row are those that S-DIET's speed on one H200 makes of FroSSL's time",
    ),
)
