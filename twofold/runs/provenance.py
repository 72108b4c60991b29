"""Which images a run was trained on: whoever looks at it later holds out the same ones, whatever was added since."""

import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twofold.config import Config
from twofold.data.hold_out import training_rows
from twofold.data.open import find_again, open_source
from twofold.data.readers.folder import read_class_list
from twofold.data.source import ARRAY, DATASET, Data, Source
from twofold.data.store import ImageStore
from twofold.errors import TwofoldError
from twofold.files import atomic
from twofold.runs.trained_images import FILE, read_trained_images

MOST = 0.5  # of the names that a run was trained on
MOST_BYTES = 2**31  # of pixels that are looked at to know images again; beyond that there are only their names


@dataclass(frozen=True)
class Hashes:
    """Of the pixels of images as the network gets them, and one of all that a run has of its images, in their order."""

    train: np.ndarray
    test: np.ndarray
    order: str


def remember(run: Path, source: Source, test_fraction: float, data: Data) -> str:
    """The source's fingerprint, and of each image that is trained on a hash of its pixels and, if any, of its name.
    Returns how many images are there twice, in words; nothing where none is."""
    hashes = _hashes_of(data)
    names = source.train.names(training_rows(source, test_fraction))
    kept = {"fingerprint": np.array(source.fingerprint)}
    if names is not None:
        kept["trained"] = np.unique(_hashes(os.fsencode(name) for name in names))
    if hashes is not None:
        kept["pixels"], kept["order"] = np.unique(hashes.train), np.array(hashes.order)
    try:
        with atomic(run / FILE, durable=True) as aside, aside.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **kept)
    except OSError as error:
        raise TwofoldError(f"{run / FILE} could not be written: {error}") from None
    return "" if hashes is None else _copies(hashes)


def own_source(run: Path, config: Config, say: Callable[[str], None], data: Any = None) -> Source:
    """The images that a run was trained on, found again, or in `data`; split as then. Other `data` as they are, but for
    the run's choice of classes where they have all of those."""
    if data is None:
        return as_trained(run, config, find_again(config), say)
    source = open_source(data, data_dir=config.data_dir)
    if config.class_list is not None and set(read_class_list(config.class_list)) <= set(source.classes or ()):
        source = open_source(data, data_dir=config.data_dir, class_list=config.class_list)
    return as_trained(run, config, source, say)


def is_own(run: Path, source: Source) -> bool:
    """Of what `as_trained` returns: whether it has the images that the run was trained on, wherever they lie."""
    kept = read_trained_images(run)
    return source.held_out is not None or (kept is not None and str(kept["fingerprint"]) == source.fingerprint)


def same_images(run: Path, data: Data) -> bool:
    """Whether they are what the run had, pixel by pixel and in their order, whatever their files are like now."""
    kept = read_trained_images(run)
    if kept is None or "order" not in kept or (hashes := _hashes_of(data)) is None:
        return False
    return str(kept["order"]) == hashes.order


def trained_on(run: Path, images: ImageStore) -> int:
    """How many of these the run was trained on, by their pixels: of its own test images those that are copies."""
    kept = read_trained_images(run)
    if kept is None or "pixels" not in kept:
        return 0
    pixels = _pixels(images)
    return 0 if pixels is None else int(np.isin(pixels, kept["pixels"]).sum())


def as_trained(run: Path, config: Config, source: Source, say: Callable[[str], None]) -> Source:
    """The run's own source with what it was not trained on held out: images that are new are so too. Others as is.

    Where another folder has most of the names that the run was trained on, it is the run's, moved or copied.
    """
    kept = read_trained_images(run) if source.test is None and config.data not in (ARRAY, DATASET) else None
    if kept is None or str(kept["fingerprint"]) == source.fingerprint:
        return source
    found_again = source.location == config.data
    names = source.train.names(np.arange(len(source.train)))
    if names is None or "trained" not in kept:
        if not found_again:
            return source
        raise TwofoldError(
            f"{source.name} has changed since {run} was trained, and which of its images were held out is not known "
            "any more: put the former ones back, or look at others"
        )
    trained = np.isin(_hashes(os.fsencode(name) for name in names), kept["trained"])
    if trained.sum() < (2 if found_again else max(2, MOST * len(kept["trained"]))):
        return source  # other images: all were replaced, or few names happen to be the same
    why = f"has changed since {run} was trained" if found_again else f"has the names of {run}'s images"
    say(f"{source.name} {why}: what it was not trained on counts as held out")
    return dataclasses.replace(source, held_out=~trained)


def _hashes_of(data: Data) -> Hashes | None:
    """None where the images are too many to be read for this."""
    state, pixels = hashlib.blake2b(digest_size=16), []
    for store in (data.train, data.test) if data.test is not None else (data.train,):
        if (own := _pixels(store)) is None:
            return None
        pixels.append(own)
        state.update(own.tobytes())
        for part in (store.index, store.labels, store.groups):
            state.update(b"none" if part is None else part.cpu().numpy().tobytes())
    return Hashes(pixels[0], np.concatenate([pixels[0][:0], *pixels[1:]]), state.hexdigest())


def _copies(hashes: Hashes) -> str:
    again = len(hashes.train) - len(np.unique(hashes.train))
    leaked = int(np.isin(hashes.test, hashes.train).sum())
    found = [f"{again:,} of {len(hashes.train):,} training images repeat another, pixel by pixel"] if again else []
    if leaked:
        found.append(
            f"{leaked:,} of {len(hashes.test):,} held-out images are trained on too, which flatters accuracies"
        )
    return "; ".join(found)


def _pixels(store: ImageStore) -> np.ndarray | None:
    """A hash of each image as the network gets it; None where they are too many to be read for this."""
    if store.images.nbytes > MOST_BYTES:
        return None
    return _hashes(image.tobytes() for image in store.images.cpu().numpy())


def _hashes(contents: Iterable[bytes]) -> np.ndarray:
    digests = (hashlib.blake2b(content, digest_size=8).digest() for content in contents)
    return np.frombuffer(b"".join(digests), np.uint64)
