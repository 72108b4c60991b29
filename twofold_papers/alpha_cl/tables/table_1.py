"""α-CL, Table 1: losses and rules for pair weights under one recipe."""

from twofold_papers.reproduce.readings import LINEAR
from twofold_papers.reproduce.table import Printed, Row, Setting, Table

CAPTION = "Table 1's caption"
SECTION = "section 6"
CODE = "the authors' code (facebookresearch/luckmatters, ssl/real-dataset); not in print"
UNDECAYED = Setting(
    "weight_decay", 0.0, f"{CODE}, and of six recipes the best by a linear classifier of held-out training images"
)
DIFFERS = (
    "crops, colours and schedule are ours: with those of the authors' code (crops from 0.08 of the image, saturation "
    "0.4, a learning rate that hardly decays) held-out training images were classified worse",
    "in the authors' code batches are never shuffled",
    "bfloat16",
    "their accuracy is the best of 50 epochs of a classifier, by the test set; ours is a classifier's at its minimum",
)
INFONCE = {"family": "infonce", "temperature": 0.5}
DIRECT = {"rule": "direct", "temperature": 0.5, "exponent": 4.0}
DECAYED = {"weight_decay": 1e-6}
SETTINGS = (
    Setting("encoder", "resnet18", CAPTION),
    Setting("batch_size", 128, CAPTION),
    Setting("lr", 0.01, CAPTION),
    Setting("lr_scaling", "none", "the rate is printed as used at batch 128"),
    Setting("optimizer", "adam", SECTION),
    UNDECAYED,
)


def printed(*values_and_deviations: tuple[float, float]) -> dict[str, list[Printed]]:
    """After 100, 300 and 500 epochs, over five seeds."""
    pairs = zip((100, 300, 500), values_and_deviations, strict=True)
    return {LINEAR.title: [Printed(value, sd, epochs) for epochs, (value, sd) in pairs]}


INVERSE = printed((83.72, 0.19), (87.51, 0.11), (87.69, 0.09))
TABLE = Table(
    name="alpha-cl-1",
    paper="alpha-cl",
    number="Table 1",
    title="losses and rules for pair weights, CIFAR-10, ResNet-18, batch 128",
    columns=(LINEAR,),
    epochs=100,
    settings=SETTINGS,
    rows=[
        Row("quadratic loss", "quadratic", {}, printed((63.59, 2.53), (73.02, 0.80), (73.58, 0.82))),
        Row(
            "InfoNCE",
            "contrastive",
            INFONCE,
            printed((84.06, 0.30), (87.63, 0.13), (87.86, 0.12)),
        ),
        Row(
            "backprop α(θ)",
            "alpha-cl",
            {"rule": "entropy", "temperature": 0.5, "through_importance": True},
            printed((83.42, 0.25), (87.18, 0.19), (87.48, 0.21)),
        ),
        Row(
            "α-CL-r_H",
            "alpha-cl",
            {"rule": "entropy", "temperature": 0.5},
            printed((84.27, 0.24), (87.75, 0.25), (87.92, 0.24)),
        ),
        Row("α-CL-r_γ", "alpha-cl", {"rule": "inverse", "temperature": 0.5, "gamma": 2.0}, INVERSE, note="the optimum"),
        Row(
            "α-CL-r_γ, normalised weights",
            "alpha-cl",
            {"rule": "heuristic_inverse", "temperature": 0.5, "exponent": 2.0},
            INVERSE,
            note="(D + τ)^−2: the optimum is uniform to 1e-5 with this many negatives",
        ),
        Row(
            "α-CL-r_s",
            "alpha-cl",
            {"rule": "square", "temperature": 5.0},
            printed((84.72, 0.10), (86.62, 0.17), (86.74, 0.15)),
        ),
        Row(
            "α-CL-direct",
            "alpha-cl",
            DIRECT,
            printed((85.11, 0.19), (87.93, 0.16), (88.09, 0.13)),
        ),
        Row("quadratic loss, weight decay 1e-6", "quadratic", DECAYED),
        Row("InfoNCE, weight decay 1e-6", "contrastive", INFONCE | DECAYED),
    ],
    findings=(
        "Confirmed: InfoNCE and the direct rule, three seeds each, are above their printed numbers, and direct is "
        "above InfoNCE by 0.4 points (in print 1.05), each of its seeds above each of InfoNCE's. The entropy rule "
        "equals InfoNCE, whose weights it has but for one factor (85.3 against 85.4 %, 42 dimensions both), and the "
        "quadratic loss is far below both, though nine points above its printed number. Not confirmed: that the "
        "gradient through the weights costs something (0.3 points above InfoNCE here, with one seed; 0.6 below in "
        "print), that the square rule is ahead of InfoNCE after 100 epochs (1.1 behind; in print 0.7 ahead, and "
        "behind from 300 on), and the number of r_γ. Read as the regulariser's optimum its weights are uniform, and "
        "uniform weights are the quadratic loss: 73.5 against 72.8 %, three dimensions both. What is printed fits the "
        "heuristic (D + τ)^−2, normalised. Weight decay, of which the paper says nothing, decided for InfoNCE: with "
        "1e-6 it had gained one point from 30 to 100 epochs and ended at 80.4 %; without it ends five points higher. "
        "Its authors' code has none, and so had the best of six recipes on held-out training images, 40 epochs (82.3 "
        "against 81.4 % with it; benchmarks/results/infonce-recipes-h200-2026-11-16.json), before any of the runs "
        "without it was made."
    ),
    differs=DIFFERS,
)
