"""α-CL at reduced scale: interpretations of the authors' code, and the exponent of the heuristic inverse rule."""

from twofold_papers.alpha_cl.tables.table_1 import DIRECT, INFONCE, RESULT_1, RESULT_3, SECTION, UNDECAYED
from twofold_papers.reproduce import small
from twofold_papers.reproduce.readings import EFFECTIVE_RANK, KNN, LINEAR
from twofold_papers.reproduce.table import Row, Setting, Statement, Table

CODE = "the authors' code (facebookresearch/luckmatters, ssl/real-dataset/loss/nt_xent.py)"
ENTROPY = {"rule": "entropy", "temperature": 0.5}
PAIRS = {"rule": "direct", "temperature": 0.5, "exponent": 2.0, "normalized": False}  # exp(−D/τ), not normalised
EXPONENTS = (0.5, 1, 2)
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
                f"(D + τ)^−{exponent}",
                "alpha-cl",
                {"rule": "heuristic_inverse", "temperature": 0.5, "exponent": float(exponent)},
            )
            for exponent in EXPONENTS
        ),
        Row("InfoNCE, schedule of 4 times the length", "contrastive", INFONCE | LONG),
        Row("α-CL-direct, schedule of 4 times the length", "alpha-cl", DIRECT | LONG),
    ],
    statements=(
        Statement("α-CL-direct is better than InfoNCE", "Table 1", LINEAR, "α-CL-direct", "above", "InfoNCE"),
        Statement(
            "the entropy rule r_H is as good as InfoNCE", RESULT_3, LINEAR, "α-CL-r_H", "equal", "InfoNCE", by=0.5
        ),
        Statement("a gradient through the weights is worse", RESULT_1, LINEAR, "backprop α(θ)", "below", "InfoNCE"),
    ),
    findings=(
        lambda our: (
            "Compared with InfoNCE, linear accuracy with the heuristic weights (D + τ)^−e is "
            + ", ".join(f"{our.change(f'(D + τ)^−{e}', 'InfoNCE', LINEAR)} for e = {e}" for e in EXPONENTS)
            + "."
        ),
        lambda our: (
            "With τ = 10 instead of 5, which is the authors' code, that of r_s is "
            f"{our.change('α-CL-r_s, τ = 10', 'α-CL-r_s, τ = 5', LINEAR)}; with a gradient through unnormalised "
            f"weights, it is {our.change('dual_backprop', 'dual_backprop, detached', LINEAR)}."
        ),
        lambda our: (
            "With a schedule of four times the length, InfoNCE is "
            f"{our.change('InfoNCE, schedule of 4 times the length', 'InfoNCE', LINEAR)} and the direct rule "
            f"{our.change('α-CL-direct, schedule of 4 times the length', 'α-CL-direct', LINEAR)}."
        ),
    ),
    differs=(
        *small.DIFFERS,
        "In the authors' code (simclr_trainer.py), the cosine schedule starts after 10 epochs and ends at epoch 400. "
        "The rate at epoch 100 is therefore 0.87 of its maximum. Here, it ends at four times the length of the run.",
    ),
)
