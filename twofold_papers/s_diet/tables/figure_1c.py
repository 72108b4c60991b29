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
        replace(OTHER, published={}, note="published: under 100; the paper calls this row DIET"),
        Row("DIET", "diet", note="without a projector"),
    ],
    findings=(
        "The number of distinct features is the number of singular values above a tenth of the largest.\n\n"
        "Confirmed without centring, as in the paper: S-DIET has about 236 distinct features (published: over "
        "200), DIET about 28 (published: under 100).\n\n"
        "But DIET's low number is an effect of the mean. DIET's embeddings are the features of the encoder, which "
        "are never negative. So their mean alone gives by far the largest singular value. If the mean is "
        "subtracted, DIET has 303 distinct features and S-DIET 269. DIET's singular values only decrease faster: "
        "at rank 28, they are at 0.46 of the largest, compared with 0.85 for S-DIET.\n\n"
        "Not confirmed: in the paper, there are fewer distinct features without normalisation. Here, S-DIET has "
        "more distinct features without normalisation than with it, both centred and not centred.\n\n"
        "The centred numbers change with training. S-DIET has 53 after 30 epochs, 269 after 100 and 405 after 165. "
        "DIET has 96 after 30 epochs and 303 after 100; within its run of 100 epochs, the number decreases from "
        "334. One seed."
    ),
    differs=(
        "We use CIFAR-10 and 100 epochs. The paper uses CIFAR-100 and 5000 epochs.",
        *OURS,
        "We use embeddings of augmented images from about the last ten batches, before they are normalised. The "
        "paper uses the training set.",
        "The numbers without centring are estimates, with an uncertainty of 12. We compute them from the 16 "
        "eigenvalues of the covariance and the length of the mean, which are in the records.",
    ),
)
