"""The file `classifier.safetensors`: an encoder, a linear classifier of its features, and labelled images to compare.

The file is complete: `predict` needs nothing else. Its tensors are the weights of the encoder (`encoder.NAME`), its
adapter if it has one (`adapter.mean`, `adapter.matrix`), the classifier (`classifier.weight`, `classifier.bias`), and
for some labelled images their features of unit length (`labelled.features`, float16) and their classes
(`labelled.labels`). The metadata describe the encoder as in `encoder.safetensors`, and have the names of the classes
and of the labelled images.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from twofold.errors import TwofoldError
from twofold.files import refuse_special
from twofold.models.adapter import AdaptedEncoder, Adapter
from twofold.models.classifier import Classifier
from twofold.runs.tensor_files import save_tensors
from twofold.runs.weights import METADATA_KEY, build_described, input_problem, read_described
from twofold.schema import fields, items, text

CLASSIFIER_FILE = "classifier.safetensors"
CLASSES_KEY = "classes"  # in the metadata; other files that Twofold writes do not have it


def find_problem(description: Any) -> str:
    """Return what is wrong with the description, or ""."""
    return input_problem(description) or fields({CLASSES_KEY: items(text), "labelled": items(text)})(description)


@dataclass(frozen=True, eq=False)
class Labelled:
    """Labelled images, among which `predict` finds the nearest one."""

    features: Tensor  # float16 [n, K], of unit length
    labels: Tensor  # int64 [n]
    names: list[str]  # of the files, or of the indices


@dataclass(frozen=True, eq=False)
class SavedClassifier:
    """A classifier, its labelled images, and the description of both."""

    network: Classifier
    labelled: Labelled
    description: dict[str, Any]

    @property
    def classes(self) -> list[str]:
        return list(self.description[CLASSES_KEY])


def save_classifier(
    path: Path,
    weights: Mapping[str, Tensor],
    adapter: Adapter | None,
    classifier: Mapping[str, Tensor],
    labelled: Labelled,
    description: Mapping[str, Any],
) -> None:
    """Write a classifier.

    Parameters
    ----------
    path
        The file to write.
    weights
        The state dict of the encoder.
    adapter
        The adapter of the encoder, if the classifier was trained on adapted features.
    classifier
        `weight` [C, K] and `bias` [C].
    labelled
        The labelled images to compare with.
    description
        The description of the encoder, as for `save_encoder`, with `classes`, and facts for readers of the file.
    """
    parts: dict[str, Mapping[str, Tensor]] = {
        "encoder": weights,
        "adapter": {} if adapter is None else adapter.state_dict(),
        "classifier": classifier,
        "labelled": {"features": labelled.features, "labels": labelled.labels},
    }
    tensors = {f"{part}.{name}": value for part, found in parts.items() for name, value in found.items()}
    save_tensors(path, tensors, {METADATA_KEY: json.dumps({**description, "labelled": labelled.names})})


def is_classifier(path: Any) -> bool:
    """Return whether a path is that of a file that `save_classifier` wrote."""
    try:
        with safe_open(Path(path), framework="pt") as file:
            return CLASSES_KEY in json.loads((file.metadata() or {}).get(METADATA_KEY, "{}"))
    except (SafetensorError, OSError, ValueError, TypeError, RecursionError):
        return False


def classifier_file(model: Any) -> Path:
    """Return the path of the classifier of a run. The path of a file is returned unchanged."""
    path = Path(model).expanduser()
    if path.is_dir():
        path = path / CLASSIFIER_FILE
        if not path.exists():
            raise TwofoldError(
                f"{path.parent} has no classifier: train one on labelled images with `twofold probe {path.parent} "
                f"--out {path}`"
            )
    if not path.exists():
        raise TwofoldError(f"{path} does not exist: pass a run folder or a file that `twofold probe --out` wrote")
    refuse_special([path])
    return path


def load_classifier(path: Path, module: nn.Module | None = None) -> SavedClassifier:
    """Read a classifier. `module` is a module of the same class, if the run trained the user's own module."""
    if not is_classifier(path):
        raise TwofoldError(
            f"{path} is not a classifier that Twofold wrote: write one with `twofold probe RUN --out {CLASSIFIER_FILE}`"
        )
    try:
        tensors, description = read_described(path, find_problem)
    except ValueError as error:
        raise TwofoldError(f"{path} is damaged: {error}; write it again with `twofold probe`") from None

    def part(name: str) -> dict[str, Tensor]:
        return {key.removeprefix(f"{name}."): value for key, value in tensors.items() if key.startswith(f"{name}.")}

    try:
        encoder = build_described(path, part("encoder"), description, module)
        if part("adapter"):
            encoder = AdaptedEncoder(encoder, Adapter(**part("adapter")), "adapter")
        labelled = Labelled(
            tensors["labelled.features"], tensors["labelled.labels"], [str(name) for name in description["labelled"]]
        )
        network = Classifier(encoder, **part("classifier")).eval()
        if not len(labelled.features) == len(labelled.labels) == len(labelled.names):
            raise ValueError("the labelled images are incomplete")
        classes, width = len(description[CLASSES_KEY]), tensors["labelled.features"].shape[-1]
        if network.weight.shape != (classes, width) or network.bias.shape != (classes,):
            raise ValueError("the weights of the classifier have another shape")
    except (KeyError, TypeError, ValueError) as error:
        raise TwofoldError(f"{path} is damaged: {error!r}; write it again with `twofold probe`") from None
    return SavedClassifier(network, labelled, description)


def labelled_images(features: Tensor, labels: Tensor, names: list[str]) -> Labelled:
    """Return labelled images from their features `[n, K]`."""
    return Labelled(torch.nn.functional.normalize(features.float(), dim=1).half().cpu(), labels.cpu(), names)
