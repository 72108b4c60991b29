"""`diagnose`: the spectrum and verdict of any embeddings or encoder, including those that Twofold did not train."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from twofold.data.load import load_data
from twofold.data.open import find_again, open_as, open_source
from twofold.data.source import Source
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.evaluate.duplicates import Levelled, near_duplicates
from twofold.evaluate.encoder import FILES, Encoder, is_encoder, open_encoder
from twofold.evaluate.opened import folder_of
from twofold.evaluate.spectrum import measure_spectrum
from twofold.runs.preprocess import Preprocess
from twofold.runs.provenance import is_run_source
from twofold.runs.run import Run, config_of, is_encoder_folder
from twofold.verbs.all_images import AllImages
from twofold.verbs.feature_files import READERS, as_embeddings, read_features, read_names

MOST_PAIRED = 50_000  # the most rows of which all pairs are compared to find duplicates


def diagnose(
    what: str | Path | Run | np.ndarray | Tensor | nn.Module,
    data: Any = None,
    *,
    encoder: str | nn.Module | None = None,
    image_size: int | None = None,
    adapter: bool = True,
    display: Display | None = None,
) -> dict[str, Any]:
    """Measure the spectrum of embeddings or of an encoder's features, and check for collapse and near-duplicates.

    Parameters
    ----------
    what : str, Path, Run, ndarray, Tensor or nn.Module
        Embeddings as an array `[rows, dimensions]` or as a file: .npy, .npz, or a .csv or .parquet table that `embed`
        wrote. Or an encoder: a run, a .safetensors or .onnx file, `efficientnet-lite0` or `timm:NAME` with pretrained
        weights, or a module.
    data : optional
        The images to encode, in any form that `pretrain` accepts. A run uses its own images by default. Other encoders
        need this argument.
    encoder : str or nn.Module, optional
        For a .safetensors file that Twofold did not write: the name of its architecture. For a run that trained your
        own module: a module of the same class.
    image_size : int, optional
        The image size for a .safetensors file that Twofold did not write.
    adapter : bool
        Apply the adapter that `adapt` wrote, if there is one.
    display : Display, optional
        Where progress is printed. By default nothing is printed.

    Returns
    -------
    dict
        `of` (the name of what was measured), `rows`, `dimension`, `measures` (by name), `eigenvalues` (of the
        covariance, descending), `verdict`, `duplicates` (groups of row numbers, or None if they were not searched for),
        `duplicate_files` (the same groups as file names, or None without names) and `training` (the verdict at the end
        of the run, or None).

    Examples
    --------
    >>> import numpy as np
    >>> import twofold
    >>> found = twofold.diagnose(np.random.default_rng(0).normal(size=(500, 64)))
    >>> found["verdict"]["kind"]
    'healthy'
    """
    display = display or Display(quiet=True)
    what = what.path if isinstance(what, Run) else what
    training = None
    if isinstance(what, np.ndarray | Tensor):
        if data is not None or encoder is not None:
            raise TwofoldError("data and encoder do not apply to embeddings: leave them out")
        array = what if isinstance(what, np.ndarray) else what.detach().cpu().float().numpy()
        name, measured = "an array", Diagnosed(as_embeddings("the array", array))
    elif isinstance(what, nn.Module):
        name = type(what).__name__
        measured = encoder_features(what, name, data, encoder, image_size, adapter, display)
    elif isinstance(what, str | Path):
        name = str(what)
        measured = named_features(what, data, encoder, image_size, adapter, display)
        if Path(what).is_dir():
            training = None if is_encoder_folder(Path(what)) else (Run(what).results or {}).get("verdict")
    else:
        raise TwofoldError(
            f"diagnose cannot measure a {type(what).__name__}: give a file, a run, an encoder or an array"
        )
    return {"of": name, **describe_features(measured, display), "training": training}


@dataclass(frozen=True, eq=False)
class Diagnosed:
    """Features `[rows, dimensions]`, and what is known about their rows."""

    features: Tensor
    files: Sequence[str] | None = None  # the names of the images
    # The features that are compared to find duplicates. Those of an encoder are of images of equal brightness and
    # contrast, as in `duplicates`, so that both find the same groups.
    to_compare: Callable[[], Tensor] | None = None


def describe_features(measured: Diagnosed, display: Display) -> dict[str, Any]:
    """Return the measures, eigenvalues, verdict and near-duplicates of features."""
    features = measured.features
    with display.stage("measuring the spectrum", len(features)) as stage:
        spectrum, measures, verdict = measure_spectrum(features, stage)
    duplicates, files = None, measured.files
    # After a complete collapse, rows differ only by noise, and whitening would amplify it to look like content.
    if spectrum and verdict.kind != "complete collapse" and len(features) <= MOST_PAIRED:
        compared = features if measured.to_compare is None else measured.to_compare()
        with display.stage("searching duplicates", len(features)) as stage:
            duplicates = [group.rows for group in near_duplicates(compared, progress=stage)]
    return {
        "rows": len(features),
        "dimension": features.shape[1],
        "measures": measures,
        "eigenvalues": spectrum,
        "verdict": verdict.record(),
        "duplicates": duplicates,
        "duplicate_files": None
        if duplicates is None or files is None
        else [[files[row] for row in group] for group in duplicates],
    }


def named_features(
    what: str | Path,
    data: Any,
    encoder: str | nn.Module | None,
    image_size: int | None,
    adapter: bool,
    display: Display,
) -> Diagnosed:
    """Return the features in a file of embeddings, or those of the encoder that a path or name identifies."""
    path = Path(what).expanduser()
    if path.suffix in READERS and path.is_file():
        features = read_features(path)
        return Diagnosed(features, read_names(path, len(features)))
    if not is_encoder(what):
        problem = f"diagnose cannot read {what}" if path.is_file() else f"there is no file or run {what}"
        files = ", ".join((*READERS, FILES[0]))
        raise TwofoldError(f"{problem}: give a {files} or {FILES[1]} file, a run folder, or timm:NAME")
    return encoder_features(what, str(what), data, encoder, image_size, adapter, display)


def encoder_features(
    what: str | Path | nn.Module,
    name: str,
    data: Any,
    module: str | nn.Module | None,
    image_size: int | None,
    adapter: bool,
    display: Display,
) -> Diagnosed:
    """Return the features `[images, dimensions]` of an encoder. `name` is what errors call it."""
    find_images = cache(partial(images_for, what, name, data))
    encoder = open_encoder(
        what, lambda: find_images()[0], module=module, image_size=image_size, adapter=adapter, say=display.say
    )
    images = read_images(encoder, *find_images(), display)
    assert isinstance(encoder.preprocess, Preprocess)
    levelled = replace(encoder, preprocess=Levelled(encoder.preprocess))
    encoder = replace(encoder, autocast=nullcontext)  # the spectrum is computed from float32 features for every run

    def compute(opened: Encoder, title: str) -> Tensor:
        with display.stage(title, len(images)) as stage:
            return opened.features(images, progress=stage)

    features = compute(encoder, "computing features")
    return Diagnosed(features, images.catalogue.files, partial(compute, levelled, "computing features to compare"))


def images_for(what: str | Path | nn.Module, name: str, data: Any) -> tuple[Source, dict[str, Any]]:
    """Return the images to encode, and the fractions of them that the run held out if they are its own."""
    path = folder_of(what)
    if path is None:
        if data is None:
            raise TwofoldError(f"{name} is an encoder: give DATA, the images to encode")
        return open_source(data), {"test_fraction": 0.0}
    config = config_of(path)
    source = find_again(config) if data is None else open_as(config, data, class_list=False)
    if not is_run_source(path, source):
        return source, {"test_fraction": 0.0}
    return source, {"test_fraction": config.test_fraction, "unlabelled_fraction": config.unlabelled_fraction}


def read_images(encoder: Encoder, source: Source, held_out: dict[str, Any], display: Display) -> AllImages:
    """Read the images of the source, without its test set if it has a separate one.

    A run's own images are split as in the run, so that the images it decoded are found in the cache.
    """
    preprocess = encoder.preprocess
    assert isinstance(preprocess, Preprocess)
    with display.stage("reading images", len(source)) as stage:
        read = load_data(
            source,
            image_size=preprocess.image_size,
            channels=preprocess.channels,
            **held_out,
            progress=stage,
            rest=True,
        )
    return AllImages(read if source.test is None else replace(read, test=None))
