"""α-CL, Table 1: losses and rules for pair weights under one recipe."""

from twofold.reproduce.readings import LINEAR
from twofold.reproduce.table import Printed, Row, Setting, Table

CAPTION = "Table 1's caption"
SECTION = "section 6"
CODE = "the authors' code (facebookresearch/luckmatters, ssl/real-dataset); not in print"
AS_IN_CODE = (
    Setting("weight_decay", 0.0, CODE),
    Setting("schedule", "constant", f"{CODE}: a cosine over 390 epochs that begins after 10"),
    Setting("warmup_epochs", 0.0, CODE),
    Setting("augment.crop_scale", (0.08, 1.0), CODE),
    Setting("augment.saturation", 0.4, CODE),
)
DIFFERS = (
    "in the authors' code batches are never shuffled, and the learning rate ends at 0.87 of its start",
    "their accuracy is the best of 50 epochs of a classifier, by the test set; ours is a classifier's at its minimum",
)
INFONCE = {"family": "infonce", "temperature": 0.5}
OURS = "crops from a fifth of the image, weight decay 1e-6, cosine"
FORMER = {
    "weight_decay": 1e-6,
    "schedule": "cosine",
    "warmup_epochs": 10.0,
    "augment.crop_scale": (0.2, 1.0),
    "augment.saturation": 0.2,
}
SETTINGS = (
    Setting("encoder", "resnet18", CAPTION),
    Setting("batch_size", 128, CAPTION),
    Setting("lr", 0.01, CAPTION),
    Setting("lr_scaling", "none", "the rate is printed as used at batch 128"),
    Setting("optimizer", "adam", SECTION),
    *AS_IN_CODE,
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
            {"rule": "direct", "temperature": 0.5, "exponent": 4.0},
            printed((85.11, 0.19), (87.93, 0.16), (88.09, 0.13)),
        ),
        Row("quadratic loss, our recipe", "quadratic", FORMER, note=OURS),
        Row("InfoNCE, our recipe", "contrastive", INFONCE | FORMER, note=OURS),
    ],
    findings=(
        "Not confirmed so far: with our recipe at the printed learning rate InfoNCE is four points below the printed "
        "number, and the quadratic loss, still far below InfoNCE, ten above it. InfoNCE had 79.4 % after a run of 30 "
        "epochs, so 70 more gave one point where SimCLR gains seven; its features lost dimensions meanwhile "
        "(effective rank 268 and 173). The authors' code says weight decay 0, smaller crops and a learning rate that "
        "stays: a run so, stopped by the clock at epoch 90 and not recorded, was no better online. One seed."
    ),
    differs=DIFFERS,
)
