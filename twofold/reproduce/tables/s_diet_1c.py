"""S-DIET, Figure 1c: how many distinct features are learnt, counted by singular values."""

from dataclasses import replace

from twofold.reproduce.readings import DISTINCT, EFFECTIVE_RANK
from twofold.reproduce.table import Row, Table
from twofold.reproduce.tables.s_diet_1 import OURS, SETTINGS
from twofold.reproduce.tables.s_diet_3 import NORMALISED, OTHER

TABLE = Table(
    name="s-diet-1c",
    paper="s-diet",
    number="Figure 1c",
    title="singular values of the embeddings above a tenth of the largest, ResNet-18",
    columns=(DISTINCT, EFFECTIVE_RANK),
    epochs=100,
    settings=SETTINGS,
    rows=[
        replace(NORMALISED, printed={}, note="in print: over 200"),
        replace(OTHER, printed={}),
        Row("DIET", "diet", note="in print: under 100"),
    ],
    findings=(
        "Not seen at this length. Normalised, S-DIET has over 200 singular values above a tenth of the largest, as in "
        "print; not normalised it has more, and so has DIET. What was counted in print had fifty times the epochs: "
        "dimensions that are never lost here may be lost there."
    ),
    differs=(
        "ours on CIFAR-10, 100 epochs; the paper on CIFAR-100, 5000 epochs",
        OURS,
        "singular values of centred embeddings of augmented images, over about the last ten batches, before they are "
        "scaled to unit length; the paper's are of the training set",
    ),
)
