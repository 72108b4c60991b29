"""α-CL, Table 4: the exponent p of the direct rule."""

from twofold_papers.alpha_cl.tables.table_1 import DIFFERS, SETTINGS
from twofold_papers.reproduce.readings import LINEAR
from twofold_papers.reproduce.table import Printed, Row, Table

IN_PRINT = {2: (83.74, 0.18), 4: (84.06, 0.24), 6: (84.08, 0.42), 8: (83.91, 0.28), 10: (83.56, 0.13)}

TABLE = Table(
    name="alpha-cl-4",
    paper="alpha-cl",
    number="Table 4",
    title="the exponent p of the direct rule, ResNet-18, batch 128",
    columns=(LINEAR,),
    epochs=100,
    settings=SETTINGS,
    rows=[
        Row(
            f"p = {exponent}",
            "alpha-cl",
            {"rule": "direct", "temperature": 0.5, "exponent": float(exponent)},
            {LINEAR.title: [Printed(value, sd, 500, "STL-10")]},
        )
        for exponent, (value, sd) in IN_PRINT.items()
    ],
    findings=(
        "Confirmed in part: p = 4 is better than p = 2, which is the entropy rule (85.1 %, and 85.3 as a run of Table "
        "1). From there to p = 10 all are alike, within one standard deviation of p = 4; that p = 10 falls behind, by "
        "half a point in print, is not seen. The effective rank of the embeddings grows with p, from 42 at p = 2 to "
        "103 at p = 10: more weight on the nearest negatives spreads the images further. One seed but for p = 4."
    ),
    differs=(
        "the published numbers are on STL-10 after 500 epochs, ours on CIFAR-10; encoder and batch size are not "
        "printed, and Table 1's are taken, whose entropy rule has on STL-10 just the number of p = 2",
        *DIFFERS,
    ),
)
