"""S-DIET, Figure 1c: the number of distinct features that are learnt, counted by singular values."""

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
        replace(NORMALISED, published={}, note="published: over 200"),
        replace(OTHER, published={}, note="published: under 100, called DIET"),
        Row("DIET", "diet", note="without a projector"),
    ],
    findings=(
        "Confirmed without centring, as in the paper: S-DIET has about 236 singular values above a tenth of the "
        "largest (published: over 200), DIET about 28 (published: under 100). But the mean of the embeddings causes "
        "DIET's low number. DIET's embeddings are the encoder's features, which are not negative, so their mean gives "
        "by far the largest singular value. With centring, DIET has 303 and S-DIET 269; DIET's singular values only "
        "decrease faster, to 0.46 of the largest at rank 28, compared with 0.85 for S-DIET. Not confirmed: S-DIET "
        "without normalisation has more distinct features than with it, with and without centring. The centred numbers "
        "grow with training (S-DIET has 53 after 30 epochs, 269 after 100 and 405 after 165; DIET has 96 and 303 after "
        "30 and 100, but within its run of 100 epochs it decreases from 334). One seed."
    ),
    differs=(
        "we use CIFAR-10 and 100 epochs, the paper CIFAR-100 and 5000 epochs",
        OURS,
        "we use embeddings of augmented images from about the last ten batches, before they are normalised; the paper "
        "uses the training set",
        "the numbers without centring are estimates: records contain 16 eigenvalues of the covariance and the length "
        "of the mean, which determine them to within 12",
    ),
)
