"""`diagnose`: the spectrum and verdict of embeddings and encoders, also of those that Twofold did not train."""

from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from twofold.data.load import load_data
from twofold.data.open import find_again, open_source
from twofold.data.source import Source
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.evaluate.duplicates import near_duplicates
from twofold.evaluate.encoder import Encoder, is_encoder, open_encoder
from twofold.evaluate.spectrum import measure_spectrum
from twofold.runs.preprocess import Preprocess
from twofold.runs.provenance import is_own
from twofold.runs.run import Run
from twofold.verbs.all_images import AllImages
from twofold.verbs.feature_files import READERS, as_embeddings, read_features

MOST_PAIRED = 50_000  # rows up to which all pairs are looked at for duplicates


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
    what = what.path if isinstance(what, Run) else what
    training = None
    if isinstance(what, np.ndarray | Tensor):
        if data is not None or encoder is not None:
            raise TwofoldError("embeddings are looked at as they are: leave out data and encoder")
        array = what if isinstance(what, np.ndarray) else what.detach().cpu().float().numpy()
        name, features = "an array", as_embeddings("the array", array)
    elif isinstance(what, nn.Module):
        name = type(what).__name__
        features = encoder_features(what, name, data, encoder, image_size, display)
    elif isinstance(what, str | Path):
        name = str(what)
        features = named_features(what, data, encoder, image_size, display)
        if Path(what).is_dir():
            training = (Run(what).results or {}).get("verdict")
    else:
        raise TwofoldError(f"diagnose takes no {type(what).__name__}: give a file, a run, an encoder or an array")
    return {"of": name, **describe_features(features, display), "training": training}


def describe_features(features: Tensor, display: Display) -> dict[str, Any]:
    """Measures, eigenvalues, verdict and near-duplicates of rows."""
    with display.stage("measuring the spectrum", len(features)) as stage:
        spectrum, measures, verdict = measure_spectrum(features, stage)
    duplicates = None
    # Rows that are all nearly the same differ by noise, which whitening would take for images.
    if spectrum and verdict.kind != "complete collapse" and len(features) <= MOST_PAIRED:
        with display.stage("looking for duplicates", len(features)) as stage:
            duplicates = [group.rows for group in near_duplicates(features, progress=stage)]
    return {
        "rows": len(features),
        "dimension": features.shape[1],
        "measures": measures,
        "eigenvalues": spectrum,
        "verdict": verdict.record(),
        "duplicates": duplicates,
    }


def named_features(
    what: str | Path, data: Any, encoder: str | nn.Module | None, image_size: int | None, display: Display
) -> Tensor:
    """Of a file of embeddings, or of an encoder that a path or name leads to."""
    path = Path(what).expanduser()
    if path.suffix in READERS and path.is_file():
        return read_features(path)
    if not is_encoder(what):
        problem = f"diagnose cannot read {what}" if path.is_file() else f"there is no {what}"
        files = ", ".join(READERS)
        raise TwofoldError(f"{problem}: give a {files} or .safetensors file, a run folder, or timm:NAME")
    return encoder_features(what, str(what), data, encoder, image_size, display)


def encoder_features(
    what: str | Path | nn.Module,
    name: str,
    data: Any,
    module: str | nn.Module | None,
    image_size: int | None,
    display: Display,
) -> Tensor:
    find_images = cache(partial(images_for, what, name, data))
    encoder = open_encoder(what, lambda: find_images()[0], module=module, image_size=image_size)
    encoder = replace(encoder, autocast=nullcontext)  # whatever precision a run has: spectra are of float32 features
    images = read_images(encoder, *find_images(), display)
    with display.stage("features", len(images)) as stage:
        return encoder.features(images, progress=stage)


def images_for(what: str | Path | nn.Module, name: str, data: Any) -> tuple[Source, float]:
    """The images that an encoder is to look at, and the part of them that the run held out, if they are its own."""
    path = None if isinstance(what, nn.Module) else Path(what).expanduser()
    if path is None or not path.is_dir():
        if data is None:
            raise TwofoldError(f"{name} is an encoder: give DATA, the images that it should look at")
        return open_source(data), 0.0
    config = Run(path).config
    source = find_again(config) if data is None else open_source(data, data_dir=config.data_dir)
    return source, config.test_fraction if is_own(path, source) else 0.0


def read_images(encoder: Encoder, source: Source, test_fraction: float, display: Display) -> AllImages:
    """The images of the source but for a test set of its own. Those of a run are split as the run split them, so that
    the decoded images are found in the cache."""
    preprocess = encoder.preprocess
    assert isinstance(preprocess, Preprocess)
    with display.stage("reading images", len(source)) as stage:
        read = load_data(
            source,
            image_size=preprocess.image_size,
            channels=preprocess.channels,
            test_fraction=test_fraction,
            progress=stage,
            rest=True,
        )
    return AllImages(read if source.test is None else replace(read, test=None))
