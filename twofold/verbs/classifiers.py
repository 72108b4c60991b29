"""Classifiers that are saved for `predict`: that of a linear probe, and that of a run that was trained with labels."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from twofold.data.store import ImageStore
from twofold.errors import TwofoldError
from twofold.evaluate.features import Subset
from twofold.evaluate.linear import LinearProbe
from twofold.evaluate.probes import labelled_splits
from twofold.evaluate.protocols import SOLVERS
from twofold.files import refuse_unwritable
from twofold.runs.classifier_file import CLASSIFIER_FILE, Labelled, labelled_images, save_classifier
from twofold.runs.folder import RunFolder
from twofold.runs.weights import encoder_file, read_adapter, read_encoder
from twofold.train.trainer import Trainer
from twofold.verbs.probing import ADAPTED, ProbeData
from twofold.verbs.selection import Kept

MOST_LABELLED = 20_000  # labelled images in the file, evenly spaced; `predict` names the nearest of them


def refuse_unwritable_classifier(run: Any, out: str | Path, layer: str) -> None:
    """Raise an error before the work if the classifier could not be written or used."""
    if isinstance(run, nn.Module) or not Path(run).expanduser().exists():
        raise TwofoldError(
            f"{type(run).__name__ if isinstance(run, nn.Module) else run} is not a run or a file that Twofold wrote, "
            "so its classifier cannot be saved: first write the encoder to a file with `twofold export --format "
            "safetensors`"
        )
    if Path(out).suffix != ".safetensors":
        raise TwofoldError(f"classifier {out}: give a .safetensors file")
    if layer != "pre":
        raise TwofoldError("a classifier of the projector's output cannot be saved: leave out --layer post")
    refuse_unwritable(Path(out))


def save_probe_classifier(
    out: Path, run: Any, probed: ProbeData, solver: str, *, views: int, accuracy: float | None
) -> None:
    """Write the classifier that a probe measured: that of the trained encoder, with its adapter if it was applied."""
    name, (features, _) = next(iter(probed.representations.items()))
    splits = probed.splits
    weights, description = read_encoder(run)
    adapter = read_adapter(encoder_file(run), weights) if name == ADAPTED else None
    classes = len(splits.classes)
    probe = SOLVERS[solver](features, splits.train_labels, classes=classes)
    rows = chosen_rows(len(splits.train))
    facts = {
        "classes": list(splits.classes),
        "data": probed.name,
        "solver": solver,
        "views": views,
        "accuracy": accuracy,
        "train_images": len(splits.train),
        "test_images": len(splits.test),
    }
    labelled = labelled_images(features[rows], splits.train_labels[rows], names_of(splits.train, rows))
    save_classifier(
        out, weights, None if adapter is None else adapter[0], folded(probe), labelled, {**description, **facts}
    )


def folded(probe: LinearProbe) -> Mapping[str, Tensor]:
    """Return `weight` [C, K] and `bias` [C] for features that are not standardised."""
    weight = probe.weight / probe.scale[:, None]
    return {"weight": weight.T.float(), "bias": (probe.bias - probe.mean @ weight).float()}


def save_trained_classifier(trainer: Trainer, folder: RunFolder, kept: Kept) -> None:
    """Write the classifier of a run that was trained with labels, unless the run keeps the encoder of another step."""
    head, splits = trainer.method.head, labelled_splits(trainer.data)
    classes, train = trainer.data.classes, trainer.data.train.labelled()
    if not trainer.method.classifies or not isinstance(head, nn.Linear) or kept.step != trainer.step:
        return
    if classes is None or train.labels is None or head.out_features != len(classes):
        return
    rows = chosen_rows(len(train))
    features = trainer.encoder(kept.encoder).features(Subset(train, rows))
    facts = {
        "classes": list(classes),
        "data": trainer.data.name,
        "solver": trainer.config.method,
        "views": 1,
        "accuracy": None,
        "train_images": len(train),
        "test_images": 0 if splits is None else len(splits.test),
    }
    bias = torch.zeros(head.out_features) if head.bias is None else head.bias
    save_classifier(
        folder.path / CLASSIFIER_FILE,
        kept.encoder.state_dict(),
        None,
        {"weight": head.weight, "bias": bias},
        labelled_of(features, train, rows),
        {**trainer.description(), **facts},
    )


def labelled_of(features: Tensor, store: ImageStore, rows: Tensor) -> Labelled:
    assert store.labels is not None
    return labelled_images(features, store.labels[rows.to(store.labels.device)], names_of(store, rows))


def names_of(store: ImageStore, rows: Tensor) -> list[str]:
    """Return the file names of these rows, or their indices if there are no files."""
    if store.files is not None:
        return [store.files[row] for row in rows.tolist()]
    return [str(index) for index in store.index[rows].tolist()]


def chosen_rows(count: int) -> Tensor:
    return torch.linspace(0, count - 1, min(count, MOST_LABELLED)).round().long()
