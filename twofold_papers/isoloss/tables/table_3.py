"""IsoLoss, Table 3: exponents 1 and 0.5 of the predictor, with and without a teacher."""

from dataclasses import replace

from twofold_papers.isoloss.tables.table_2 import (
    AUTHORS_NOTE,
    COLUMNS,
    DIFFERS,
    DIRECTPRED,
    ISOLOSS,
    NO_TEACHER,
    NUMBERS,
    PUBLISHED,
    SETTINGS,
    TEACHER,
    WIDTHS,
    by_authors,
)
from twofold_papers.reproduce.table import Row, Table

ONE = {"exponent": 1.0, "epsilon": 0.25}  # ε of the authors' code; not in the paper

TABLE = Table(
    name="isoloss-3",
    paper="isoloss",
    number="Table 3",
    title="exponents 1 and 0.5 of the predictor, with and without a teacher, CIFAR-10, ResNet-18",
    columns=COLUMNS,
    epochs=100,
    settings=SETTINGS,
    rows=[
        Row(
            "DirectCopy, EMA",
            "directcopy",
            TEACHER | WIDTHS | {"epsilon": 0.25},
            NUMBERS["DirectCopy, EMA"],
        ),
        alone := Row(
            "DirectCopy",
            "directcopy",
            NO_TEACHER | WIDTHS | {"epsilon": 0.25},
            NUMBERS["DirectCopy"],
        ),
        by_authors(alone),
        *DIRECTPRED,
        Row(
            "IsoLoss, α = 1, EMA",
            "isoloss",
            TEACHER | WIDTHS | ONE,
            NUMBERS["IsoLoss, α = 1, EMA"],
        ),
        alone := Row(
            "IsoLoss, α = 1",
            "isoloss",
            NO_TEACHER | PUBLISHED | WIDTHS | ONE,
            NUMBERS["IsoLoss, α = 1"],
        ),
        coded := by_authors(alone),
        replace(
            coded,
            name="IsoLoss, α = 1, ε = 0",
            settings={**coded.settings, "epsilon": 0.0},
            note=f"as the row before, but with ε = 0; {AUTHORS_NOTE}",
        ),
        *ISOLOSS,
    ],
    findings=(
        "Confirmed: with a teacher, IsoLoss is at least as good as the predictor that it modifies, also for α = 1 "
        "(82.5 % online accuracy; DirectCopy has 80.3 %). Without a teacher, DirectCopy crashes, with the "
        "published settings (15.6 %) and with those of the authors' code (20.7 %).\n\n"
        "Not confirmed: in the paper, IsoLoss with a teacher has the same accuracy for both exponents. Here, α = ½ "
        "is 1.3 points better than α = 1 after 100 epochs.\n\n"
        "Not confirmed: in the paper, IsoLoss with α = 1 also trains without a teacher. Here, it crashes with the "
        "published settings (21.6 %) and with those of the authors' code (20.0 %), although α = ½ trains with the "
        "latter. We think that the reason is ε, which is 0.25 in the code and does not occur in the paper. We "
        "tested this in short runs of a ResNet-18 on small images (`benchmarks/NOTES.md`), with several seeds, "
        "momenta, and orders in which the views update the correlation. In all of these runs, the entropy of the "
        "eigenvalues rises until step 242 for α = 1 without ε, as for α = ½, and falls with ε. The run of 100 "
        "epochs without ε has not been done yet. One seed."
    ),
    differs=DIFFERS,
)
