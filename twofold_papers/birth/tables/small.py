"""Graphs of labels at reduced scale: how many labels help, class imbalance, and why few labels help little."""

from collections.abc import Callable

from twofold_papers.reproduce import small
from twofold_papers.reproduce.conclusions import Numbers
from twofold_papers.reproduce.readings import EFFECTIVE_RANK, FEW_LABELS, KNN, LINEAR, Column
from twofold_papers.reproduce.table import Row, Setting, Table

FRACTIONS = (0.01, 0.1, 0.3, 1.0)
LARGER = {"batch_size": 1024, "lr_scaling": "none"}
SETTINGS = (*small.SETTINGS, Setting("batch_size", 256, "the default"))


def labels(fraction: float) -> dict[str, object]:
    return {"graph.source": "labels"} | ({"graph.labelled_fraction": fraction} if fraction < 1 else {})


def of_labels(method: str) -> list[Row]:
    """Rows with a graph of views, and with graphs of labels for 1, 10, 30 and 100 % of the images."""
    return [
        Row(f"{method}, views", method),
        *(
            Row(f"{method}, {percent} of labels", method, labels(fraction))
            for fraction, percent in zip(FRACTIONS, PERCENTS, strict=True)
        ),
    ]


PERCENTS = [f"{fraction:.0%}".replace("%", " %") for fraction in FRACTIONS]


def gained(our: Numbers, method: str, column: Column) -> str:
    """How graphs of labels differ from a graph of views."""
    changes = [our.change(f"{method}, {percent} of labels", f"{method}, views", column) for percent in PERCENTS]
    return ", ".join(f"{change} with {percent}" for change, percent in zip(changes, PERCENTS, strict=True))


def on_labels(method: str) -> Callable[[Numbers], str]:
    return lambda our: (
        f"Compared with a graph of views, linear accuracy of {method} with 10 labels per class is "
        f"{gained(our, method, FEW_LABELS)} of the labels."
    )


FINDINGS = (on_labels("ridge-graph"), on_labels("graph-vicreg"))
OURS = ("The paper trains no network with these objectives.", *small.DIFFERS)
LABELS = Table(
    name="birth-labels-small",
    paper="birth",
    number="Not in the paper",
    title=f"graphs of labels for some of the images; {small.TITLE}",
    columns=(LINEAR, FEW_LABELS, KNN, EFFECTIVE_RANK),
    epochs=30,
    data=small.DATA,
    settings=SETTINGS,
    rows=[
        *of_labels("ridge-graph"),
        *of_labels("graph-vicreg"),
        Row("ridge-graph, views, batch 1024", "ridge-graph", LARGER),
        Row("ridge-graph, 10 % of labels, batch 1024", "ridge-graph", LARGER | labels(0.1)),
        Row("supervised", "supervised"),
    ],
    findings=(
        *FINDINGS,
        lambda our: (
            "If the classifier has all labels, linear accuracy of ridge-graph with 10 % of the labels in its graph is "
            f"{our.change('ridge-graph, 10 % of labels', 'ridge-graph, views', LINEAR)} with a batch of 256, and "
            f"{our.change('ridge-graph, 10 % of labels, batch 1024', 'ridge-graph, views, batch 1024', LINEAR)} with a "
            "batch of 1,024."
        ),
    ),
    differs=(
        *OURS,
        "Two images are related if both labels are known. With 10 % of the labels, a batch of 256 has 2.6 labelled "
        "images of each class on average, and a batch of 1,024 has four times as many. The rows with batch 1,024 "
        "have a quarter of the steps.",
    ),
)
DIGITS = Table(
    name="birth-labels-digits",
    paper="birth",
    number="Not in the paper",
    title="graphs of labels for some of the images, at reduced scale, digits, 8 pixels",
    columns=(LINEAR, FEW_LABELS, KNN, EFFECTIVE_RANK),
    epochs=30,
    data="digits",
    rows=[
        *of_labels("ridge-graph"),
        *of_labels("graph-vicreg"),
        Row("ridge-graph, duplicates", "ridge-graph", {"graph.source": "duplicates"}),
        Row("ridge-graph, neighbours", "ridge-graph", {"graph.source": "neighbours"}),
    ],
    findings=(
        *FINDINGS,
        lambda our: (
            "Near-duplicates as a graph make it "
            f"{our.change('ridge-graph, duplicates', 'ridge-graph, views', FEW_LABELS)}, nearest neighbours "
            f"{our.change('ridge-graph, neighbours', 'ridge-graph, views', FEW_LABELS)}."
        ),
    ),
    differs=(
        "The paper trains no network with these objectives. The network is a small convolutional network.",
        "The digits have no near-duplicates, so this graph relates only the views of an image.",
    ),
)
IMBALANCE = Table(
    name="birth-imbalance-small",
    paper="birth",
    number="Not in the paper",
    title="class imbalance and a balanced graph, at reduced scale: CIFAR-10-LT (imbalance factor 100), a small "
    "convolutional encoder, 16 pixels",
    columns=(LINEAR, KNN, EFFECTIVE_RANK),
    epochs=20,
    data="cifar10-long-tailed",
    settings=SETTINGS,
    rows=[
        row
        for method in ("ridge-graph", "graph-vicreg")
        for row in (
            Row(f"{method}, views", method),
            Row(f"{method}, labels", method, labels(1.0)),
            Row(f"{method}, labels, balanced", method, labels(1.0) | {"graph.balance": True}),
        )
    ],
    findings=(
        lambda our: (
            "Compared with a graph of views, linear accuracy with a graph of labels is "
            + "; ".join(
                f"{our.change(f'{method}, labels', f'{method}, views', LINEAR)} with {method}, and "
                f"{our.change(f'{method}, labels, balanced', f'{method}, views', LINEAR)} if classes are balanced"
                for method in ("ridge-graph", "graph-vicreg")
            )
            + "."
        ),
    ),
    differs=(
        "The paper has no such experiment; its Corollary 1 assumes balanced classes.",
        "There are 12,406 training images, from 5,000 of the first class to 50 of the last. All test images are used, "
        "1,000 of each class, so the accuracy is the mean over classes.",
    ),
)
