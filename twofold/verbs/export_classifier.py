"""Export a saved classifier: one file that maps images to features and to the probabilities of the classes."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from twofold.checksums import seal
from twofold.errors import TwofoldError
from twofold.files import atomic, refuse_unwritable, write_atomically, writing
from twofold.runs.classifier_file import load_classifier
from twofold.verbs.export_formats import FOLDER, FORMATS, example_of, without_preprocessing
from twofold.version import __version__

OUTPUTS = ("features", "probabilities")
TOLERANCE = 1e-4  # the largest allowed difference of a probability


def export_classifier(
    path: Path,
    format: str,
    out: str | Path | None,
    module: nn.Module | None,
    preprocessing: Callable[[dict[str, Any]], dict[str, Any]],
) -> Path:
    """Write the encoder and the classifier as one TorchScript or ONNX file, and a JSON file that describes it.

    `module` is a module of the same class, if the run trained the user's own module. `preprocessing` describes how
    images are prepared.
    """
    if format == "safetensors":
        raise TwofoldError(f"{path} is a safetensors file already: choose the format onnx or torchscript")
    if format == FOLDER:
        raise TwofoldError(
            f"{path} is a classifier: export its run as a folder, and {path.name} as onnx or torchscript"
        )
    how, saved = FORMATS[format], load_classifier(path, module)
    without_preprocessing(saved.network.encoder)
    exported = replace(example_of(saved.network, saved.description), outputs=OUTPUTS)
    example = exported.example
    out = Path(out) if out is not None else path.with_suffix(how.ending)
    refuse_unwritable(out)
    with writing(out), atomic(out, durable=True) as aside:
        how.write(exported, aside)
        read = how.read(exported, aside)
        difference = None if read is None else difference_of(saved.network, read, example)
    facts = {
        "file": out.name,
        "format": format,
        "encoder": saved.description["encoder"],
        "input": {"name": "images", "type": "float32", "shape": ["batch", *example.shape[1:]]},
        "outputs": [
            {"name": OUTPUTS[0], "type": "float32", "shape": ["batch", saved.network.weight.shape[1]]},
            {"name": OUTPUTS[1], "type": "float32", "shape": ["batch", len(saved.classes)]},
        ],
        "classes": saved.classes,
        "preprocessing": preprocessing(saved.description),
        "largest_difference": difference,
        "twofold": __version__,
    }
    with writing(out):
        write_atomically(out.with_name(f"{out.name}.json"), json.dumps(seal(facts), indent=2) + "\n")
    return out


@torch.no_grad()
def difference_of(network: nn.Module, read: Any, example: Tensor) -> float:
    """Return the largest difference of the probabilities of the written file."""
    difference = 0.0
    for images in (example, torch.cat([example.flip(3), example, example.flip(2)])):
        written = read(images)
        written = written[-1] if isinstance(written, tuple) else written
        difference = max(difference, (written - network(images)[-1]).abs().max().item())
    if not difference <= TOLERANCE:
        raise TwofoldError(f"the probabilities of the exported file differ by {difference:g}: the file was deleted")
    return difference
