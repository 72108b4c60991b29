"""The paper's objectives as methods, with graphs of views and of labels, compared with related methods."""

from twofold_papers.reproduce.readings import EFFECTIVE_RANK, KNN, LINEAR, ONLINE
from twofold_papers.reproduce.table import Row, Table

WIDE = {"projector": (2048, 512)}  # the embedding has as many dimensions as a batch has rows
LABELS = {"graph.source": "labels"}

TABLE = Table(
    name="birth-graphs",
    paper="birth",
    number="Not in the paper",
    title="relational objectives with graphs of views and of labels, CIFAR-10, ResNet-18",
    columns=(LINEAR, KNN, ONLINE, EFFECTIVE_RANK),
    epochs=30,
    rows=[
        Row("ridge-graph, views", "ridge-graph"),
        Row("graph-vicreg, views", "graph-vicreg"),
        Row("orthogonal-head, views", "orthogonal-head"),
        Row("ridge-graph, views, 512 dimensions", "ridge-graph", WIDE | {"ridge": 0.1}, note="ridge 0.1"),
        Row("graph-vicreg, views, 512 dimensions", "graph-vicreg", WIDE | {"weight": 1.0}, note="weight 1"),
        Row("ridge-graph, labels of a tenth", "ridge-graph", LABELS | {"graph.labelled_fraction": 0.1}),
        Row("ridge-graph, labels", "ridge-graph", LABELS),
        Row("VICReg", "vicreg"),
        Row("W-MSE", "w-mse"),
        Row("supervised", "supervised"),
    ],
    findings=(
        lambda our: (
            f"With a graph of views, the paper's objectives reach {our.text('graph-vicreg, views', LINEAR)} to "
            f"{our.text('ridge-graph, views', LINEAR)} % in 30 epochs, VICReg {our.text('VICReg', LINEAR)} % and W-MSE "
            f"{our.text('W-MSE', LINEAR)} %."
        ),
        lambda our: (
            "With as many dimensions as a batch has rows, the embeddings can fit the graph of a batch without "
            "bringing views together: ridge-graph is then "
            f"{our.apart('ridge-graph, views, 512 dimensions', 'ridge-graph, views', LINEAR)} its default, "
            f"graph-vicreg {our.apart('graph-vicreg, views, 512 dimensions', 'graph-vicreg, views', LINEAR)}."
        ),
        lambda our: (
            "With the labels of all images, ridge-graph reaches "
            f"{our.text('ridge-graph, labels', LINEAR)} %, with those of a tenth "
            f"{our.text('ridge-graph, labels of a tenth', LINEAR)} %."
        ),
    ),
    differs=(
        "The paper has no such table.",
        "We chose the widths, the ridge and the weight by the accuracy on held-out training images.",
    ),
)
