"""Spectrum and verdict of embeddings and encoders that Twofold did not train: what `twofold diagnose` says."""

import copy
import csv
import math
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from twofold.data.cache import mapped
from twofold.data.sources import Source, find_again, load, natural_size, network_for, open_source
from twofold.device import choose_device
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.evaluate.duplicates import near_duplicates
from twofold.evaluate.features import extract, moments
from twofold.evaluate.metrics import (
    condition_number,
    dimensions_above,
    effective_rank,
    eigenvalues,
    shannon_entropy,
    stable_rank,
    uniformity,
)
from twofold.evaluate.verdict import Snapshot, Verdict, judge
from twofold.models import build_encoder
from twofold.models.encoders import TIMM
from twofold.runs.run import Run
from twofold.runs.weights import HEADER, Preprocess, load_encoder
from twofold.verbs.feature_files import READERS
from twofold.verbs.probing import preprocess_of

FEATURE_KEYS = ("features", "embeddings", "z", "x", "arr_0")
FEATURE_FILES = (".npy", ".npz", *READERS)
MOST_PAIRED = 50_000  # rows up to which all pairs are looked at for duplicates
COMPARED = 2048  # rows, evenly taken, that uniformity compares with each other
MEANING = {
    "effective_rank": "RankMe: exp of the entropy of the singular values",
    "stable_rank": "sum of the eigenvalues over the largest",
    "dimensions_above": "singular values above 0.1 of the largest",
    "condition_number": "first eigenvalue over the 14th, or the last",
    "shannon_entropy": "of the eigenvalues, in nats",
    "norm": "root of the mean squared length",
    "uniformity": "0: all point the same way; -4: evenly spread",
}


def diagnose(
    what: str | Path | Run | np.ndarray | Tensor | nn.Module,
    data: Any = None,
    *,
    encoder: str | nn.Module | None = None,
    image_size: int | None = None,
    display: Display | None = None,
) -> dict[str, Any]:
    """Measures, eigenvalues, verdict and near-duplicates of a file of embeddings, or of an encoder's features.

    `what`: a .npy or .npz file, or a table as `embed` writes it (.csv, .parquet); a .safetensors file, with the name of
    its architecture as `encoder` unless Twofold wrote it; a run or its folder, with the module as `encoder` if it
    trained one of yours; timm:NAME, with timm's weights for it; an encoder; or embeddings `[rows, dimensions]`. A
    run's own images are its default `data`.
    """
    display = display or Display(quiet=True)
    training = None
    if isinstance(what, np.ndarray | Tensor):
        if data is not None or encoder is not None:
            raise TwofoldError("embeddings are looked at as they are: leave out data and encoder")
        features = checked("the array", what if isinstance(what, np.ndarray) else what.detach().cpu().float().numpy())
        what = "an array"
    elif isinstance(what, nn.Module):
        source = images_for(type(what).__name__, data)
        own = copy.deepcopy(what)  # the caller's keeps its mode and its device
        features = features_of(*prepared(own, image_size, source), source, display)
        what = type(what).__name__
    else:
        what = what.path if isinstance(what, Run) else what
        if not isinstance(what, str | Path):
            raise TwofoldError(f"diagnose takes no {type(what).__name__}: give a file, a run, an encoder or an array")
        features = find_features(what, data, encoder, image_size, display)
        if Path(what).is_dir():
            training = (Run(Path(what)).results or {}).get("verdict")
    with display.stage("measuring the spectrum", len(features)) as stage:
        spectrum, measures, verdict = measure(features, stage)
    duplicates = None
    # Rows that are all nearly the same differ by noise, which whitening would take for images.
    if spectrum and verdict.kind != "complete collapse" and len(features) <= MOST_PAIRED:
        with display.stage("looking for duplicates", len(features)) as stage:
            duplicates = [group.rows for group in near_duplicates(features, progress=stage)]
    return {
        "of": str(what),
        "rows": len(features),
        "dimension": features.shape[1],
        "measures": measures,
        "eigenvalues": spectrum,
        "verdict": verdict.record(),
        "duplicates": duplicates,
        "training": training,
    }


def measure(features: Tensor, progress: Any = None) -> tuple[list[float], dict[str, float | None], Verdict]:
    """Eigenvalues, measures and verdict of rows, which may lie in a mapped file."""
    mean, covariance, broken = moments(features, progress)
    if broken:
        verdict = Verdict(
            "not finite",
            f"{broken:,} of {len(features):,} rows hold NaN or infinite values.",
            remedy="Look for where they come from: a run that diverged, half precision that overflowed, empty images.",
        )
        return [], {}, verdict
    # n rows, centred, have at most n − 1 directions.
    spectrum = eigenvalues(covariance)[: max(len(features) - 1, 1)]
    norm = (covariance.diagonal().sum() * (len(features) - 1) / len(features) + mean.square().sum()).sqrt().item()
    rows = features[:: -(-len(features) // COMPARED)].float()
    even = uniformity(rows).item() if len(rows) > 1 else 0.0
    measures = {
        "effective_rank": effective_rank(spectrum),
        "stable_rank": stable_rank(spectrum),
        "dimensions_above": dimensions_above(spectrum),
        "condition_number": condition_number(spectrum),
        "shannon_entropy": shannon_entropy(spectrum),
        "norm": norm,
        "uniformity": even,
    }
    verdict = judge([Snapshot.of(spectrum, {"embedding_norm": norm, "uniformity": even})])
    finite = {name: value if math.isfinite(value) else None for name, value in measures.items()}  # JSON has no ∞
    return [float(f"{value:.5g}") for value in spectrum.tolist()], finite, verdict


def find_features(
    what: str | Path, data: Any, encoder: str | nn.Module | None, image_size: int | None, display: Display
) -> Tensor:
    name, path = str(what), Path(what).expanduser()
    if path.suffix in FEATURE_FILES and path.is_file():
        return read_features(path)
    if name.startswith(TIMM):
        network, preprocess = timm_weights(name.removeprefix(TIMM))
    elif path.is_dir():
        config = Run(path).config
        if isinstance(encoder, str):
            raise TwofoldError(f"{path} knows its encoder: leave out encoder={encoder}")
        network = load_encoder(path, encoder=encoder)
        preprocess = preprocess_of(network)
        source = find_again(config) if data is None else open_source(data, data_dir=config.data_dir)
        return features_of(network, preprocess, source, display)
    elif path.suffix == ".safetensors" and path.is_file():
        if is_ours(path):
            network = load_encoder(path, encoder=encoder if isinstance(encoder, nn.Module) else None)
            preprocess = preprocess_of(network)
        else:
            source = images_for(what, data)
            network, preprocess = prepared(foreign_weights(path, encoder, image_size, source), image_size, source)
    else:
        problem = f"diagnose cannot read {name}" if path.is_file() else f"there is no {name}"
        files = ", ".join(FEATURE_FILES)
        raise TwofoldError(f"{problem}: give a {files} or .safetensors file, a run folder, or timm:NAME")
    return features_of(network, preprocess, images_for(what, data), display)


def images_for(what: str | Path, data: Any) -> Source:
    if data is None:
        raise TwofoldError(f"{what} is an encoder: give DATA, the images that it should look at")
    return open_source(data)


def features_of(network: nn.Module, preprocess: Preprocess, source: Source, display: Display) -> Tensor:
    with display.stage("reading images", len(source)) as stage:
        read = load(
            source,
            image_size=preprocess.image_size,
            channels=preprocess.channels,
            test_fraction=0.0,
            progress=stage,
        )
    device = choose_device("auto")
    with display.stage("features", len(read.train)) as stage:
        return extract(
            network.to(device), read.train.place(device), preprocess.to(device), device=device, progress=stage
        )


def read_features(path: Path) -> Tensor:
    """Rows of numbers [n, D]; a .npy file stays where it is."""
    try:
        content = READERS.get(path.suffix, read_array)(path)
    except (OSError, ValueError, EOFError, csv.Error, zipfile.BadZipFile, zlib.error) as error:
        text = "it holds no plain array of numbers" if "pickle" in str(error) else " ".join(str(error).split())
        raise TwofoldError(f"{path} cannot be read: {text}") from None
    return checked(str(path), content)


def checked(where: str, content: np.ndarray) -> Tensor:
    if content.ndim != 2 or content.dtype.kind != "f" or len(content) < 2:
        shape = "x".join(map(str, content.shape))
        raise TwofoldError(
            f"{where} holds {content.dtype} of shape {shape}: "
            "embeddings are floats [rows, dimensions], two rows or more"
        )
    return mapped(content)


def read_array(path: Path) -> np.ndarray:
    """Of a .npy file, mapped, or of a .npz file."""
    content = np.load(path, mmap_mode="r", allow_pickle=False)
    if isinstance(content, np.ndarray):
        return content
    with content:
        key = next((key for key in FEATURE_KEYS if key in content.files), None)
        if key is None:
            raise TwofoldError(
                f"{path} holds {', '.join(content.files) or 'nothing'}: "
                f"save embeddings under one of {', '.join(FEATURE_KEYS)}"
            )
        return content[key]


def is_ours(path: Path) -> bool:
    try:
        with safe_open(path, framework="pt") as file:
            return HEADER in (file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise TwofoldError(f"{path} cannot be read: {error}") from None


def prepared(network: nn.Module, image_size: int | None, source: Source) -> tuple[nn.Module, Preprocess]:
    """With its own way to prepare images; where it has none, they are normalised by their own mean and deviation."""
    if isinstance(getattr(network, "preprocess", None), Preprocess):
        return network, preprocess_of(network)
    size, channels = image_size or natural_size(source.train.side), source.chosen["channels"]
    first = getattr(network, "conv1", None)
    if isinstance(first, nn.Conv2d):
        channels = first.in_channels
    mean, std = load(source, image_size=size, channels=channels, test_fraction=0.0).train.statistics()
    return network.eval(), Preprocess(size, channels, mean.tolist(), std.tolist())


def foreign_weights(path: Path, name: str | nn.Module | None, image_size: int | None, source: Source) -> nn.Module:
    """An encoder of that name, or of that architecture, with the weights of the file."""
    if name is None:
        raise TwofoldError(f"{path} does not say of which network it is: give --encoder resnet50, say, or timm:NAME")
    tensors = load_file(path)
    size = image_size or natural_size(source.train.side)
    first = tensors.get("conv1.weight")
    # A ResNet's stem is in its first weights, but for the pooling after a small one.
    stem = "large" if first is not None and first.shape[-1] == 7 else network_for(size)["stem"]
    channels = source.chosen["channels"] if first is None else first.shape[1]
    network = (
        build_encoder(name, channels=channels, stem=stem, image_size=size)
        if isinstance(name, str)
        else copy.deepcopy(name)
    )
    load_body(path, network, tensors)
    return network


def load_body(path: Path, network: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """All that the encoder needs; what the file has beyond it, such as a classifier, is left."""
    wanted = network.state_dict()
    missing = [key for key in wanted if key not in tensors and not key.endswith("num_batches_tracked")]
    wrong = [key for key, value in wanted.items() if key in tensors and tensors[key].shape != value.shape]
    if missing or wrong:
        named = f"lacks {missing[0]}" if missing else f"has {wrong[0]} of shape {tuple(tensors[wrong[0]].shape)}"
        raise TwofoldError(
            f"{path} is not of that encoder: it {named} ({len(missing)} missing, {len(wrong)} of another shape)"
        )
    network.load_state_dict({key: tensors.get(key, value) for key, value in wanted.items()})


def timm_weights(name: str) -> tuple[nn.Module, Preprocess]:
    """timm's model with its pretrained weights, which timm fetches or has, and its own way to prepare images."""
    try:
        import timm
    except (ImportError, RuntimeError) as error:
        raise TwofoldError(f"{TIMM}{name} needs timm ({error}): pip install timm") from None
    try:
        network = timm.create_model(name, pretrained=True, num_classes=0)
    except Exception as error:  # of many kinds: a name, a network that is not there, a file that is broken
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise TwofoldError(f"timm has no weights for {name} here: {reason}") from None
    settings = timm.data.resolve_model_data_config(network)
    channels, size, _ = settings["input_size"]
    return network.eval(), Preprocess(size, channels, settings["mean"], settings["std"])
