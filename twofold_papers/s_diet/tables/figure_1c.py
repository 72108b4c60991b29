"""S-DIET, Figure 1c: the number of distinct features that are learnt, counted by singular values."""

from dataclasses import replace

from twofold_papers.reproduce.curves import singular_values
from twofold_papers.reproduce.readings import DISTINCT, EFFECTIVE_RANK, UNCENTRED
from twofold_papers.reproduce.table import Figure, Row, Statement, Table
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
        Row("DIET, normalised", "diet", {"normalize": True}, note="without a projector"),
    ],
    statements=(
        Statement(
            "DIET has fewer distinct features than S-DIET",
            "section 6.1.1, Figure 1c",
            UNCENTRED,
            "DIET",
            "below",
            "normalised",
            least=24.0,
            published="under 100 and over 200",
        ),
        Statement(
            "without normalisation there are fewer distinct features",
            "section 6.1.1, Figure 1c",
            UNCENTRED,
            "not normalised",
            "below",
            "normalised",
            least=24.0,
            published="under 100 and over 200",
        ),
    ),
    findings=(
        "The number of distinct features is that of singular values above a tenth of the largest.",
        lambda our: (
            "DIET's low number is an effect of the mean, because its features are never negative: with the mean "
            f"subtracted, DIET has {our.text('DIET', DISTINCT, '.0f')} and S-DIET "
            f"{our.text('normalised', DISTINCT, '.0f')}."
        ),
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
