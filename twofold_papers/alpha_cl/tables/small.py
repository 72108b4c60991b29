"""α-CL at reduced scale: interpretations of the authors' code, and the exponent of the heuristic inverse rule."""

from twofold_papers.alpha_cl.tables.table_1 import DIRECT, INFONCE, SECTION, UNDECAYED
from twofold_papers.reproduce import small
from twofold_papers.reproduce.readings import EFFECTIVE_RANK, KNN, LINEAR
from twofold_papers.reproduce.table import Row, Setting, Table

CODE = "the authors' code (facebookresearch/luckmatters, ssl/real-dataset/loss/nt_xent.py)"
ENTROPY = {"rule": "entropy", "temperature": 0.5}
PAIRS = {"rule": "direct", "temperature": 0.5, "exponent": 2.0, "normalized": False}  # exp(−D/τ), not normalised
LONG = {"schedule_epochs": 120.0}  # as 400 to 100 epochs

TABLE = Table(
    name="alpha-cl-1-small",
    paper="alpha-cl",
    number="Table 1, at reduced scale",
    title=f"the authors' code and the paper, and exponents of (D + τ)^−e; {small.TITLE}",
    columns=(LINEAR, KNN, EFFECTIVE_RANK),
    epochs=30,
    data=small.DATA,
    settings=(
        *small.SETTINGS,
        Setting("batch_size", 128, "Table 1's caption"),
        Setting("lr", 0.01, "Table 1's caption"),
        Setting("lr_scaling", "none", "the paper gives the rate for batch size 128"),
        Setting("optimizer", "adam", SECTION),
        UNDECAYED,
    ),
    rows=[
        Row("InfoNCE", "contrastive", INFONCE),
        Row("α-CL-direct", "alpha-cl", DIRECT),
        Row("α-CL-r_H", "alpha-cl", ENTROPY),
        Row("α-CL-r_s, τ = 5", "alpha-cl", {"rule": "square", "temperature": 5.0}, note="the paper's problem"),
        Row(
            "α-CL-r_s, τ = 10",
            "alpha-cl",
            {"rule": "square", "temperature": 10.0},
            note="the authors' code with τ = 5, whose problem lacks a factor of 2",
        ),
        Row("backprop α(θ)", "alpha-cl", ENTROPY | {"through_importance": True}, note="eq 6, normalised weights"),
        Row(
            "dual_backprop",
            "alpha-cl",
            PAIRS | {"through_importance": True},
            note=f"weights exp(−D/τ) without normalisation, with gradient; commit 0d6abe9 of {CODE}",
        ),
        Row("dual_backprop, detached", "alpha-cl", PAIRS, note="the same weights, without gradient"),
        *(
            Row(
                f"(D + τ)^−{exponent:g}",
                "alpha-cl",
                {"rule": "heuristic_inverse", "temperature": 0.5, "exponent": exponent},
            )
            for exponent in (0.5, 1.0, 2.0)
        ),
        Row("InfoNCE, schedule of 4 times the length", "contrastive", INFONCE | LONG),
        Row("α-CL-direct, schedule of 4 times the length", "alpha-cl", DIRECT | LONG),
    ],
    differs=(
        *small.DIFFERS,
        "In the authors' code (simclr_trainer.py), the cosine schedule starts after 10 epochs and ends at epoch 400. "
        "The rate at epoch 100 is therefore 0.87 of its maximum. Here, it ends at four times the length of the run.",
    ),
)
