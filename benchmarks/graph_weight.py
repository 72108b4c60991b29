"""Choose the weight of graph-vicreg by accuracy on held-out training images. Test images are not used.

    python -m benchmarks.graph_weight --data digits --graph labels --labelled 0.1 [--seed 0] [--out FILE.json]

A fifth of the training images is held out. For each weight, the method trains on the others, with the small encoder and
its other defaults. The table shows the accuracies on the held-out images.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch

import twofold
from benchmarks.results import Table, keep
from twofold.data.load import load_data
from twofold.data.open import open_source

WEIGHTS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
SIZES = {"digits": 8}  # 16 pixels for other data
HELD_OUT = 0.2


def training_images(name: str, data_dir: str) -> tuple[Any, Any]:
    """The training images [n, H, W, C] of a data set and their labels."""
    source = open_source(name, data_dir=data_dir)
    size = SIZES.get(name, 16)
    train = load_data(source, image_size=size, channels=source.train.channels, test_fraction=HELD_OUT).train
    assert train.labels is not None
    return train.images.permute(0, 2, 3, 1).numpy(), train.labels.numpy()


def measure(images: tuple[Any, Any], weight: float, graph: dict[str, Any], seed: int, epochs: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        run = twofold.pretrain(
            images,
            method="graph-vicreg",
            out=Path(folder) / "run",
            encoder="conv",
            epochs=epochs,
            seed=seed,
            test_fraction=HELD_OUT,
            map_points=0,
            precision="float32",
            **graph,
            weight=weight,
        )
        trained = next(row for row in run.results["table"] if row["name"] == "trained")
        rank = run.metrics[-1]["effective_rank"]
    accuracies = {name: trained[name] for name in ("linear_accuracy", "few_labels_accuracy", "knn_accuracy")}
    return {"weight": weight, **accuracies, "effective_rank": rank}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--data-dir", default="data")
    parser.add_argument("--graph", default="views", help="views, labels, ...")
    parser.add_argument("--labelled", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--weights", type=float, nargs="+", default=WEIGHTS)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", default="", help="the commit, where there is no repository")
    given = parser.parse_args()
    graph = {"graph__source": given.graph}
    graph |= {"graph__labelled_fraction": given.labelled} if given.graph == "labels" else {}
    images = training_images(given.data, given.data_dir)
    table = Table("weight", "linear_accuracy", "few_labels_accuracy", "knn_accuracy", "effective_rank")
    for weight in given.weights:
        table.add(measure(images, weight, graph, given.seed, given.epochs))
    settings = {name: getattr(given, name) for name in ("data", "graph", "labelled", "seed", "epochs")}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(keep("graph-vicreg-weight", table, settings, device, given.commit, given.out))


if __name__ == "__main__":
    main()
