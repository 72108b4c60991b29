"""S-DIET, Figure 1c: how many distinct features are learnt, counted by singular values."""

from dataclasses import replace

from twofold_papers.reproduce.curves import singular_values
from twofold_papers.reproduce.readings import DISTINCT, EFFECTIVE_RANK, UNCENTRED
from twofold_papers.reproduce.table import Figure, Row, Table
from twofold_papers.s_diet.tables.table_1 import OURS, SETTINGS
from twofold_papers.s_diet.tables.table_3 import NORMALISED, OTHER

TABLE = Table(
    name="s-diet-1c",
    paper="s-diet",
    number="Figure 1c",
    title="singular values of the embeddings above a tenth of the largest, ResNet-18",
    columns=(UNCENTRED, DISTINCT, EFFECTIVE_RANK),
    epochs=100,
    figures=(Figure("singular-values", "spectrum", singular_values),),
    settings=SETTINGS,
    rows=[
        replace(NORMALISED, printed={}, note="in print: over 200"),
        replace(OTHER, printed={}, note="in print: under 100, called DIET"),
        Row("DIET", "diet", note="without a projector"),
    ],
    findings=(
        "Confirmed where the mean of the embeddings stays in them, as it does in singular values of representations: "
        "S-DIET has about 236 above a tenth of the largest (in print over 200), DIET about 28 (under 100). But what "
        "makes DIET's few is that mean: its embeddings are the encoder's features, which are positive, and so their "
        "mean is the largest singular value by far. Centred, DIET has 303, S-DIET 269; what is left of the contrast "
        "is that DIET's fall sooner, to 0.46 of the largest at rank 28, where S-DIET's is at 0.85. Not seen: that "
        "S-DIET without normalisation has few; with its projector it has more, centred or not. Centred numbers grow "
        "with the length of a run (S-DIET has 53 after 30 epochs, 269 after 100, 405 after 165; DIET 96 and 303, "
        "though within its run of 100 it falls from 334). One seed."
    ),
    differs=(
        "ours on CIFAR-10, 100 epochs; the paper on CIFAR-100, 5000 epochs",
        OURS,
        "singular values of embeddings of augmented images, over about the last ten batches, before they are scaled to "
        "unit length; the paper's are of the training set",
        "numbers that are not centred are estimated: records hold 16 eigenvalues of the covariance and the length of "
        "the mean, which bound them to within 12",
    ),
)
