"""α-CL, Table 1: losses and rules for pair weights, trained with one recipe."""

from collections.abc import Mapping, Sequence

from twofold_papers.reproduce.published import Number, Published, published
from twofold_papers.reproduce.readings import LINEAR
from twofold_papers.reproduce.table import Row, Setting, Statement, Table

Columns = Mapping[str, Sequence[Published]]  # published numbers by column title

CAPTION = "Table 1's caption"
SECTION = "section 6"
RESULT_1, RESULT_3 = "section 6, result 1", "section 6, result 3"
CODE = "the authors' code (facebookresearch/luckmatters, ssl/real-dataset), not in the paper"
UNDECAYED = Setting(
    "weight_decay", 0.0, f"{CODE}; also the best of six recipes by linear accuracy on held-out training images"
)
DIFFERS = (
    "Crops, colour augmentation and schedule are ours. With those of the authors' code (crops from 0.08 of the "
    "image, saturation 0.4, a learning rate that hardly decays), linear accuracy on held-out training images was "
    "lower.",
    "The authors' code never shuffles batches; we do.",
    "We train in bfloat16.",
    "The published accuracy is the best of 50 epochs of a classifier, chosen on the test set. Ours is the accuracy "
    "of a classifier that is trained to convergence.",
)
INFONCE = {"family": "infonce", "temperature": 0.5}
DIRECT = {"rule": "direct", "temperature": 0.5, "exponent": 4.0}
DECAYED = {"weight_decay": 1e-6}
UNTIL_400 = "as in the authors' simclr_trainer.py, but with a warm-up; the rate at epoch 100 is 0.87 of its maximum"
SETTINGS = (
    Setting("encoder", "resnet18", CAPTION),
    Setting("batch_size", 128, CAPTION),
    Setting("lr", 0.01, CAPTION),
    Setting("lr_scaling", "none", "the paper gives the rate for batch size 128"),
    Setting("optimizer", "adam", SECTION),
    UNDECAYED,
)


def after(first: Sequence[Number | None], *, data: str, encoder: str = "resnet18") -> list[Published]:
    """Published numbers after 100, 300 and 500 epochs: mean and standard deviation over five seeds."""
    return [
        each
        for epochs, number in zip((100, 300, 500), first, strict=True)
        if number is not None
        for each in published({data: number}, epochs=epochs, encoder=encoder)
    ]


def accuracies(cifar10: Sequence[Number], stl10: Sequence[Number], **more: Sequence[Number]) -> Columns:
    by_data = {"cifar10": cifar10, "stl10": stl10, **more}
    return {LINEAR.title: [each for data, numbers in by_data.items() for each in after(numbers, data=data)]}


INVERSE = accuracies([(83.72, 0.19), (87.51, 0.11), (87.69, 0.09)], [(78.22, 0.28), (82.19, 0.52), (83.47, 0.34)])
QUADRATIC = accuracies([(63.59, 2.53), (73.02, 0.80), (73.58, 0.82)], [(55.59, 4.00), (64.97, 1.45), (67.28, 1.21)])
NCE = accuracies(
    [(84.06, 0.30), (87.63, 0.13), (87.86, 0.12)],
    [(78.46, 0.24), (82.49, 0.26), (83.70, 0.12)],
    cifar100=[(55.70, 0.37), (59.71, 0.36), (59.89, 0.34)],  # from Table 2
)
DIRECT_NUMBERS = accuracies(
    [(85.11, 0.19), (87.93, 0.16), (88.09, 0.13)],
    [(79.32, 0.36), (82.95, 0.17), (84.05, 0.20)],
    cifar100=[(57.63, 0.07), (60.12, 0.26), (60.27, 0.29)],  # from Table 2
)
TABLE = Table(
    name="alpha-cl-1",
    paper="alpha-cl",
    number="Table 1",
    title="losses and rules for pair weights, CIFAR-10, ResNet-18, batch size 128",
    columns=(LINEAR,),
    epochs=100,
    settings=SETTINGS,
    rows=[
        Row(
            "quadratic loss",
            "quadratic",
            {},
            QUADRATIC,
        ),
        Row(
            "InfoNCE",
            "contrastive",
            INFONCE,
            NCE,
        ),
        Row(
            "backprop α(θ)",
            "alpha-cl",
            {"rule": "entropy", "temperature": 0.5, "through_importance": True},
            accuracies([(83.42, 0.25), (87.18, 0.19), (87.48, 0.21)], [(77.88, 0.17), (81.86, 0.30), (83.19, 0.16)]),
        ),
        Row(
            "α-CL-r_H",
            "alpha-cl",
            {"rule": "entropy", "temperature": 0.5},
            accuracies([(84.27, 0.24), (87.75, 0.25), (87.92, 0.24)], [(78.53, 0.35), (82.62, 0.15), (83.74, 0.18)]),
        ),
        Row(
            "α-CL-r_γ",
            "alpha-cl",
            {"rule": "inverse", "temperature": 0.5, "gamma": 2.0},
            INVERSE,
            note="weights at the minimum of the regularised problem",
        ),
        Row(
            "α-CL-r_γ, normalised weights",
            "alpha-cl",
            {"rule": "heuristic_inverse", "temperature": 0.5, "exponent": 2.0},
            INVERSE,
            note="heuristic weights (D + τ)^−2; with this many negatives, all weights at the minimum are equal within "
            "1e-5",
        ),
        Row(
            "α-CL-r_s",
            "alpha-cl",
            {"rule": "square", "temperature": 5.0},
            accuracies([(84.72, 0.10), (86.62, 0.17), (86.74, 0.15)], [(76.95, 1.06), (80.64, 0.77), (81.65, 0.59)]),
        ),
        Row(
            "α-CL-direct",
            "alpha-cl",
            DIRECT,
            DIRECT_NUMBERS,
        ),
        Row(
            "α-CL-r_s, τ = 10",
            "alpha-cl",
            {"rule": "square", "temperature": 10.0},
            note="the authors' code with τ = 5, whose problem lacks a factor of 2",
        ),
        *(
            Row(f"{name}, schedule until epoch 400", method, settings | {"schedule_epochs": 400.0}, note=UNTIL_400)
            for name, method, settings in (("InfoNCE", "contrastive", INFONCE), ("α-CL-direct", "alpha-cl", DIRECT))
        ),
        Row(
            "dual_backprop, detached",
            "alpha-cl",
            {"rule": "direct", "temperature": 0.5, "exponent": 2.0, "normalized": False},
            note="weights exp(−D/τ), neither normalised nor with gradient (nt_xent.py)",
        ),
        Row("quadratic loss, weight decay 1e-6", "quadratic", DECAYED),
        Row(
            "InfoNCE, weight decay 1e-6",
            "contrastive",
            INFONCE | DECAYED,
            note="the paper does not mention weight decay; the authors' code has none",
        ),
    ],
    statements=(
        Statement("α-CL-direct is better than InfoNCE", "Table 1", LINEAR, "α-CL-direct", "above", "InfoNCE"),
        Statement(
            "the entropy rule r_H is as good as InfoNCE", RESULT_3, LINEAR, "α-CL-r_H", "equal", "InfoNCE", by=0.5
        ),
        Statement("the rule r_γ is as good as InfoNCE", RESULT_3, LINEAR, "α-CL-r_γ", "equal", "InfoNCE", by=0.5),
        Statement(
            "after 100 epochs, the rule r_s is better than InfoNCE", "Table 1", LINEAR, "α-CL-r_s", "above", "InfoNCE"
        ),
        Statement("a gradient through the weights is worse", RESULT_1, LINEAR, "backprop α(θ)", "below", "InfoNCE"),
        Statement(
            "the quadratic loss is far below InfoNCE", "Table 1", LINEAR, "quadratic loss", "below", "InfoNCE", by=5.0
        ),
    ),
    findings=(
        lambda our: (
            f"With this many negatives, all weights of r_γ at the minimum are equal within 1e-5, which is the "
            f"quadratic loss ({our.text('quadratic loss', LINEAR)} %); the heuristic weights (D + τ)^−2 reach "
            f"{our.text('α-CL-r_γ, normalised weights', LINEAR)} %."
        ),
    ),
    differs=DIFFERS,
)
