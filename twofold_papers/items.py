"""What the five papers contain: every numbered equation, statement, table and figure, and every named ablation.

The lists follow the papers, not our code, so that an item which we do not compute is seen. `coverage` finds for each
item the claims, figures and tables that cover it.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    """An item of a paper, with its numbering there.

    `within`: the items of which it is a step or a definition, and with which it is checked. `tables`: the tables of
    `twofold reproduce` that cover it in addition to those with its number.
    """

    name: str
    about: str = ""
    within: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()


def equations(last: int, steps: dict[str, Iterable[int]], unused: int = 0) -> list[Item]:
    """Equations 1 to `last`, without the number that the paper skips.

    `steps` names the item of which an equation is a step or a definition.
    """
    part_of: dict[int, list[str]] = {}
    for whole, numbers in steps.items():
        for number in numbers:
            part_of.setdefault(number, []).append(whole)
    used = (number for number in range(1, last + 1) if number != unused)
    return [Item(f"eq {number}", within=tuple(part_of.get(number, ()))) for number in used]


def numbered(kind: str, numbers: str) -> list[Item]:
    return [Item(f"{kind} {number}") for number in numbers.split()]


S_DIET = [
    *equations(17, {"eq 2": [1], "eq 4": [3], "eq 7": [6]}),
    Item("Assumption 4.1", within=("Theorem 4.3",)),
    *numbered("Lemma", "4.2 B.2 B.4 B.5 B.6 B.7 B.8"),
    *numbered("Theorem", "4.3 5.1 B.1 B.3"),
    *numbered("Appendix", "A.2 A.3"),
    Item("Listing 1", "pseudocode of S-DIET"),
    Item("Table 1", "MNIST-on-CIFAR with and without normalisation"),
    Item("Table 2", "batch cross entropy and full cross entropy"),
    Item("Table 3", "ablation: normalisation"),
    Item("Table 4", "ablation: projection head"),
    Item("Table 5", "accuracies of methods"),
    Item("Table 6", "GPU memory"),
    *numbered("Figure", "1a 1b 1c 2"),
    Item("Section 5.2.2", "stateful optimizers: multistep and exact updates"),
]
FROSSL = [
    *equations(34, {"Proposition D.1": [14, 15, 16]}),
    *numbered("Definition", "3.1 3.2"),
    *numbered("Proposition", "3.1 3.2 3.3 D.1 D.2"),
    Item("Table 1", "taxonomy of methods: text only, no numbers", within=("Table 2",)),
    Item("Table 2", "accuracies after 1000 and 500 epochs"),
    Item("Table 3", "online accuracy early in training"),
    Item("Figure 1", "the pipeline: a drawing", within=("eq 6",)),
    Item("Figure 2", "loss and eigenvalues of the linear network"),
    Item("Figure 3", "eigenvalues early in training"),
    Item("Figure 4", "ImageNet"),
    Item("Section 6.3", "ablation: no logarithm", tables=("frossl-online", "long")),
    Item("Appendix C", "ablation: dimension of the projector and batch size"),
    Item("Section 3.1", "the intuition of the logarithm as a weight"),
]
BIRTH = [
    *equations(3, {"Appendix A.2": [3]}),
    Item("Definition 1", "absolute objective", within=("eq 1",)),
    Item("Definition 2", "relative objective", within=("eq 2",)),
    *numbered("Lemma", "1"),
    *numbered("Theorem", "1 2"),
    *numbered("Corollary", "1"),
    *numbered("Proposition", "1"),
    Item("Section 2.2", "worst-case downstream error"),
    Item("Section 3", "duplicates in the data"),
    *numbered("Figure", "1 2"),
    *numbered("Appendix", "A.1 A.2 B"),
]
ALPHA_CL = [
    *equations(
        92,
        {
            "Theorem 1": [3, *range(13, 18)],
            "Theorem 2": range(21, 27),
            "Section 4.1": [10],
            "Lemma 2": [11],
            "Section 4.2": [28],
            "Theorem 3": [31, *range(33, 38)],
            "Lemma 3": [38, 39],
            "Lemma 4": [46, *range(48, 60)],
            "Lemma 5": [60, 61, 62, 64, 65],
            "Lemma 6": [66],
            "Lemma 7": range(67, 74),
            "Lemma 9": [74, *range(79, 82)],
            "Lemma 10": [83, 84],
            "Lemma 11": [85, 86],
            "Lemma 15": [91, 92],
        },
        unused=8,
    ),
    *numbered("Definition", "1 2"),
    Item("Definition 3", within=("Theorem 4",)),
    Item("Definition 4", within=("Theorem 5",)),
    Item("Definition 5", within=("Theorem 6",)),
    Item("Assumption 1", within=("Theorem 4", "Theorem 5", "Theorem 6")),
    *numbered("Theorem", "1 2 3 4 5 6"),
    *numbered("Corollary", "1 2 3"),
    *numbered("Lemma", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15"),
    *numbered("Section", "4.1 4.2 5.2"),
    Item("Section 6", "ablation: gradient through the weights, and the slopes of the regularisers"),
    Item("Table 1", "losses and rules for pair weights"),
    Item("Table 2", "ResNet-50 and CIFAR-100"),
    Item("Table 3", "ablation: normalised pair weights, batch size 256"),
    Item("Table 4", "ablation: exponent of the direct rule"),
    Item("Figure 1", "the problem setting: a drawing", within=("eq 1",)),
    *numbered("Figure", "2 3"),
    Item("Figure 4", "the notation of normalisation: a drawing", within=("Lemma 2",)),
]
ISOLOSS = [
    *equations(27, {"Theorem 1": [20], "eq 17": [26, 27]}),
    *numbered("Lemma", "1 2 3"),
    *numbered("Theorem", "1 2"),
    *numbered("Appendix", "C.1 C.2 C.3 C.4 C.5.1 C.5.2"),
    Item("Table 1", "predicted dynamics of eight losses"),
    Item("Table 2", "accuracies with and without a teacher"),
    Item("Table 3", "ablation: exponents of the predictor"),
    Item("Table 4", "sizes of images and stems: settings only, the defaults of the data sets", within=("Table 2",)),
    Item("Figure 1", "the network: a drawing", within=("eq 1",)),
    Item("Figure 2", "representations and eigenvalues of a linear network"),
    *(
        Item(f"Figure 3{part}", about)
        for part, about in zip(
            "abcd",
            (
                "eigenvalues, Euclidean distance",
                "accuracy, Euclidean distance",
                "eigenvalues, cosine distance",
                "accuracy, cosine distance",
            ),
            strict=True,
        )
    ),
    Item("Figure 4", "alignment of a trained linear predictor"),
    Item("Figure 5", "dynamics of two neurons"),
    Item("Figure 6", "Figure 2 with ReLU"),
    Item("Figure 7", "eigenvalues with and without a teacher"),
    Item("Figure 8a", "ablation: weight decay, DirectPred"),
    Item("Figure 8b", "ablation: weight decay, IsoLoss"),
]
ITEMS = {"s-diet": S_DIET, "frossl": FROSSL, "birth": BIRTH, "alpha-cl": ALPHA_CL, "isoloss": ISOLOSS}
