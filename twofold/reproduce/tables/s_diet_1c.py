"""S-DIET, Figure 1c: how many distinct features are learnt, counted by singular values."""

from dataclasses import replace

from twofold.reproduce.curves import singular_values
from twofold.reproduce.readings import DISTINCT, EFFECTIVE_RANK
from twofold.reproduce.table import Figure, Row, Table
from twofold.reproduce.tables.s_diet_1 import OURS, SETTINGS
from twofold.reproduce.tables.s_diet_3 import NORMALISED, OTHER

TABLE = Table(
    name="s-diet-1c",
    paper="s-diet",
    number="Figure 1c",
    title="singular values of the embeddings above a tenth of the largest, ResNet-18",
    columns=(DISTINCT, EFFECTIVE_RANK),
    epochs=100,
    figures=(Figure("singular-values", "spectrum", singular_values),),
    settings=SETTINGS,
    rows=[
        replace(NORMALISED, printed={}, note="in print: over 200"),
        replace(OTHER, printed={}, note="in print: under 100, called DIET"),
        Row("DIET", "diet", note="without a projector"),
    ],
    findings=(
        "Not seen. Normalised, S-DIET has over 200 singular values above a tenth of the largest, as in print; not "
        "normalised it has more, and so has DIET. Here their number grows with the length of a run (S-DIET has 53 "
        "after 30 epochs, 269 after 100, 405 after 165; DIET 96 and 303, though within its run of 100 it falls from "
        "334), so a shorter run is no reason; why DIET has under 100 in print we do not know. One seed."
    ),
    differs=(
        "ours on CIFAR-10, 100 epochs; the paper on CIFAR-100, 5000 epochs",
        OURS,
        "singular values of centred embeddings of augmented images, over about the last ten batches, before they are "
        "scaled to unit length; the paper's are of the training set",
    ),
)
