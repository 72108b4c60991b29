"""IsoLoss, Table 3: exponents 1 and 0.5 of the predictor, with and without a teacher."""

from dataclasses import replace

from twofold_papers.isoloss.tables.table_2 import (
    AUTHORS_NOTE,
    COLUMNS,
    CRASHED,
    DIFFERS,
    DIRECTPRED,
    ISOLOSS,
    NO_TEACHER,
    PRINTED,
    SETTINGS,
    TEACHER,
    WIDTHS,
    by_authors,
    printed,
)
from twofold_papers.reproduce.table import Row, Table

ONE = {"exponent": 1.0, "epsilon": 0.25}  # ε of the authors' code; not in print

TABLE = Table(
    name="isoloss-3",
    paper="isoloss",
    number="Table 3",
    title="exponents 1 and 0.5 of the predictor, with and without a teacher, CIFAR-10, ResNet-18",
    columns=COLUMNS,
    epochs=100,
    settings=SETTINGS,
    rows=[
        Row("DirectCopy, EMA", "directcopy", TEACHER | WIDTHS | {"epsilon": 0.25}, printed(91.3, 0.2)),
        alone := Row("DirectCopy", "directcopy", NO_TEACHER | WIDTHS | {"epsilon": 0.25}, printed(12.1, 0.6, CRASHED)),
        by_authors(alone),
        *DIRECTPRED,
        Row("IsoLoss, α = 1, EMA", "isoloss", TEACHER | WIDTHS | ONE, printed(91.5, 0.2)),
        alone := Row("IsoLoss, α = 1", "isoloss", NO_TEACHER | PRINTED | WIDTHS | ONE, printed(91.4, 0.2)),
        coded := by_authors(alone),
        replace(
            coded,
            name="IsoLoss, α = 1, ε = 0",
            settings={**coded.settings, "epsilon": 0.0},
            note=f"as before, without ε; {AUTHORS_NOTE}",
        ),
        *ISOLOSS,
    ],
    findings=(
        "Confirmed: with a teacher IsoLoss is no worse than the predictor that it changes, for α = 1 too (82.5 % "
        "online, DirectCopy 80.3), and DirectCopy without a teacher crashes, as printed (15.6) and with the settings "
        "of the authors' code (20.7). After 100 epochs α = ½ is 1.3 points better than α = 1 with IsoLoss and a "
        "teacher; in print they are alike. Not confirmed: IsoLoss with α = 1 without a teacher, which crashes as "
        "printed (21.6) and with the settings of the authors' code (20.0), where with α = ½ it trains. We think that ε "
        "is why, 0.25 in their code and not in print: in the first 242 steps of a ResNet-18 on small images α = 1 "
        "goes up without it, as α = ½ does, and down with it, whatever the seed, the momentum, or the order in which "
        "views update the correlation (benchmarks/NOTES.md); at 100 epochs this was not run yet. One seed."
    ),
    differs=DIFFERS,
)
