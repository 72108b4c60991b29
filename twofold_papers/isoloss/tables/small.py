"""IsoLoss at reduced scale: α = 1 without EMA, the authors' eigenvectors, and the alignment of a trained predictor."""

from twofold_papers.isoloss.tables.table_2 import AUTHORS, AUTHORS_NOTE, NO_TEACHER, TEACHER
from twofold_papers.reproduce import small
from twofold_papers.reproduce.readings import DISTINCT, EFFECTIVE_RANK, KNN, LINEAR, ONLINE, alignment_of
from twofold_papers.reproduce.table import Probe, Row, Setting, Statement, Table

WIDTHS = {"projector": (1024, 256)}
ALONE = NO_TEACHER | AUTHORS | WIDTHS
GENERAL = {"general_eigenvectors": True}
SETTINGS = (*small.SETTINGS, Setting("batch_size", 256, "appendix D"))
VARIANTS = (
    ("α = ½", {"exponent": 0.5}),
    ("α = 1, ε = 0.25", {"exponent": 1.0, "epsilon": 0.25}),
    ("α = 1, ε = 0", {"exponent": 1.0, "epsilon": 0.0}),
)
WIDTH_NOTE = "The projector has widths 1,024 and 256 instead of 4,096 and 256."

TABLE = Table(
    name="isoloss-3-small",
    paper="isoloss",
    number="Table 3, at reduced scale",
    title=f"IsoLoss without a teacher: exponents, ε and eigenvectors; {small.TITLE}",
    columns=(ONLINE, LINEAR, KNN, EFFECTIVE_RANK, DISTINCT),
    epochs=50,
    data=small.DATA,
    settings=SETTINGS,
    rows=[
        *(Row(name, "isoloss", ALONE | settings) for name, settings in VARIANTS),
        *(
            Row(f"{name}, eig(C).real", "isoloss", ALONE | settings | GENERAL, note="as in the authors' directpred.py")
            for name, settings in VARIANTS
        ),
        *(
            Row(f"{name}, momentum 0.998", "isoloss", ALONE | settings | {"correlation_momentum": 0.998, "scale": 1.0})
            for name, settings in VARIANTS
        ),
        Row("DirectPred", "directpred", ALONE | {"exponent": 0.5}),
        Row("DirectPred, eig(C).real", "directpred", ALONE | {"exponent": 0.5} | GENERAL),
        Row("DirectCopy", "directcopy", ALONE | {"epsilon": 0.25}),
    ],
    statements=(
        *(
            Statement(
                f"without a teacher, IsoLoss with {name} is better than {other}",
                "section 3.2, Tables 2 and 3",
                ONLINE,
                name,
                "above",
                other,
                published=gap,
            )
            for name, other, gap in (
                ("α = ½", "DirectPred", "+79.4 (ResNet-18)"),
                ("α = 1, ε = 0.25", "DirectCopy", "+79.3 (ResNet-18)"),
                ("α = 1, ε = 0", "DirectCopy", "+79.3 (ResNet-18; ε is not in the paper)"),
            )
        ),
    ),
    findings=(
        lambda our: (
            "With ε = 0 instead of 0.25, online accuracy with α = 1 is "
            f"{our.change('α = 1, ε = 0', 'α = 1, ε = 0.25', ONLINE)}."
        ),
        lambda our: (
            "With the authors' eig(C).real, online accuracy is "
            + ", ".join(f"{our.change(f'{name}, eig(C).real', name, ONLINE)} for {name}" for name, _ in VARIANTS)
            + "."
        ),
        lambda our: (
            "With the published momentum of 0.998, it is "
            + ", ".join(f"{our.change(f'{name}, momentum 0.998', name, ONLINE)} for {name}" for name, _ in VARIANTS)
            + "."
        ),
    ),
    differs=(
        *small.DIFFERS,
        WIDTH_NOTE,
        f"All rows have the settings of the authors' code: {AUTHORS_NOTE}. The rows with momentum 0.998 have the "
        "published momentum and the published scale of 1 instead.",
    ),
)

EPOCHS = (1, 5, 20, 50)
MIDDLE = alignment_of(2, 10)
ALIGNMENT = Table(
    name="isoloss-4-small",
    paper="isoloss",
    number="Figure 4, at reduced scale",
    title=f"alignment of a trained linear predictor with the eigenvectors of E[zzᵀ]; {small.TITLE}",
    columns=(alignment_of(1, 1), MIDDLE, alignment_of(11, 100), alignment_of(101, 256), LINEAR),
    epochs=50,
    data=small.DATA,
    settings=(
        *SETTINGS,
        Setting("schedule", "constant", "so that runs of different lengths are parts of one run"),
        Setting("warmup_epochs", 1.0, "the same for all lengths"),
    ),
    rows=[
        Row(
            f"{title}, {epochs} epoch{'s' * (epochs > 1)}",
            "byol",
            TEACHER | WIDTHS | {"predictor_width": 0, "weight_decay": 1e-5, "distance": distance, "lr": rate},
            epochs=epochs,
            probes=(Probe("alignment", alignment=True),),
        )
        for title, distance, rate, lengths in (
            ("cosine", "cosine", 1.0, EPOCHS),
            ("Euclidean", "euclidean", 0.01, EPOCHS[:-1]),
        )
        for epochs in lengths
    ],
    findings=(
        lambda our: (
            "The predictor aligns with the eigenvectors if the cosine approaches 1: for eigenvectors 2 to 10, it goes "
            f"from {our.text('cosine, 1 epoch', MIDDLE, '.2f')} after one epoch to "
            f"{our.text('cosine, 50 epochs', MIDDLE, '.2f')} after 50 with the cosine distance, and from "
            f"{our.text('Euclidean, 1 epoch', MIDDLE, '.2f')} to {our.text('Euclidean, 20 epochs', MIDDLE, '.2f')} "
            "after 20 with the Euclidean distance."
        ),
    ),
    differs=(
        *small.DIFFERS,
        WIDTH_NOTE,
        "The paper shows all eigenvectors and epochs as a picture without numbers. It does not give the recipe of this "
        "figure. We use BYOL with a teacher and a linear predictor, and a constant learning rate.",
        "The learning rate is 1 with the cosine distance and 0.01 with the Euclidean distance, because runs with 0.1 "
        "diverge after 30 steps.",
    ),
)
