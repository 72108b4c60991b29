"""Record which images a run is trained on, and recognise them later.

The record has three purposes:

- Evaluations hold out only images that were not used for training, even if files were added or the folder has moved.
- `resume` accepts a copy of the images, although its files differ.
- Evaluations count the test images that were used for training.
"""

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
from twofold.data.open import find_again, open_as
from twofold.data.readers.folder import read_class_list
from twofold.data.source import ARRAY, DATASET, Data, Source
from twofold.data.store import ImageStore
from twofold.errors import TwofoldError
from twofold.files import atomic
from twofold.runs.images_record import ARRAYS, IMAGES_FILE, read_trained_images
from twofold.text import plural

MIN_SHARED_NAMES = 0.5  # a folder at another path is a copy of the run's images if it has this share of their names
MOST_LISTED = 100_000  # images; of larger sets, the names are not recorded
SHOWN = 3  # names in a message
MAX_HASHED_BYTES = 2**31  # the pixels of larger sets are not hashed, because that would take too long


@dataclass(frozen=True)
class ImageHashes:
    """Hashes of the decoded images of a run, at its image size."""

    train: np.ndarray  # uint64 [n], one for each training image
    test: np.ndarray  # uint64 [n], one for each held-out image
    order: str  # one hash of the images, indices, labels and groups of both sets in their order

    @property
    def all(self) -> np.ndarray:
        return np.concatenate([self.train, self.test])


def record_trained_images(run: Path, source: Source, config: Config, data: Data) -> str:
    """Write `images.npz`, the record of the images that a run is trained on.

    The file contains these arrays:

    - `arrays`: the names of the others. It is the first, because damage can hide the arrays after another one.
    - `fingerprint`: the fingerprint of the source.
    - `trained`: the hashes of the file names of the training images. Arrays have no file names.
    - `pixels`: the hashes of the pixels of the training images, unless there are too many.
    - `order`: one hash of all images, indices, labels and groups in their order, unless there are too many.
    - `names`, `contents`: the names of all images as one text, separated by null characters, and the hashes of their
      pixels, unless there are too many. With them, `describe_changes` names the images that changed.

    Parameters
    ----------
    run
        The run folder.
    source
        The images before they are decoded.
    config
        The configuration, which states the share of the images that is held out.
    data
        The decoded images of the source.

    Returns
    -------
    str
        A text on exact duplicates among the images. It is empty if there are none.
    """
    hashes = _hash_data(data)
    names = source.train.names(training_rows(source, config.test_fraction, config.unlabelled_fraction))
    record = {"fingerprint": np.array(source.fingerprint)}
    if names is not None:
        record["trained"] = np.unique(_hash_each(os.fsencode(name) for name in names))
    if hashes is not None:
        record["pixels"], record["order"] = np.unique(hashes.train), np.array(hashes.order)
        if len(hashes.all) <= MOST_LISTED:
            record["names"] = np.frombuffer(os.fsencode("\0".join(_names_of(data))), np.uint8)
            record["contents"] = hashes.all
    try:
        with atomic(run / IMAGES_FILE, durable=True) as aside, aside.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **{ARRAYS: np.array(list(record)), **record})
    except OSError as error:
        raise TwofoldError(
            f"{run / IMAGES_FILE} could not be written: {error}; free some disk space, or make {run} writable"
        ) from None
    return "" if hashes is None else _describe_copies(hashes)


def open_run_source(run: Path, config: Config, say: Callable[[str], None], data: Any = None) -> Source:
    """Open the images that a run was trained on, with the same images held out, or open other images.

    Parameters
    ----------
    run
        The run folder.
    config
        The configuration of the run.
    say
        Called with a text if the images have changed or moved.
    data : optional
        The new location of the images, or other images. By default they are where the run found them.

    Returns
    -------
    Source
        The images. If `data` has all classes of the run's `class_list`, other classes are left out.
    """
    if data is None:
        return with_run_split(run, config, find_again(config), say)
    source = open_as(config, data, class_list=False)
    if config.class_list is not None and set(read_class_list(config.class_list)) <= set(source.classes or ()):
        source = open_as(config, data)
    return with_run_split(run, config, source, say)


def is_run_source(run: Path, source: Source) -> bool:
    """Whether a source has the images that the run was trained on.

    Images that have changed or moved are recognised only if `with_run_split` returned the source.
    """
    recorded = read_trained_images(run)
    return source.held_out is not None or (recorded is not None and str(recorded["fingerprint"]) == source.fingerprint)


def has_same_images(run: Path, data: Data) -> bool:
    """Whether the data have the same pixels, indices, labels and groups as those of the run, in the same order.

    The files may differ. The result is false if there are no hashes of the pixels to compare.
    """
    recorded = read_trained_images(run)
    if recorded is None or "order" not in recorded or (hashes := _hash_data(data)) is None:
        return False
    return str(recorded["order"]) == hashes.order


def describe_changes(run: Path, data: Data) -> str:
    """Return how many images are missing, new or changed since the run started, with some names.

    The result is empty if the record does not tell: it has no names, or only labels, groups or the order changed.
    """
    recorded = read_trained_images(run)
    if recorded is None or "names" not in recorded or (hashes := _hash_data(data)) is None:
        return ""
    names = os.fsdecode(recorded["names"].tobytes()).split("\0")
    before = dict(zip(names, recorded["contents"].tolist(), strict=True))
    now = dict(zip(_names_of(data), hashes.all.tolist(), strict=True))
    found = {
        "missing": [name for name in before if name not in now],
        "new": [name for name in now if name not in before],
        "changed": [name for name in now if name in before and before[name] != now[name]],
    }
    return "; ".join(
        f"{plural(len(some), 'image')} {'is' if len(some) == 1 else 'are'} {how}: {', '.join(some[:SHOWN])}"
        f"{', …' if len(some) > SHOWN else ''}"
        for how, some in found.items()
        if some
    )


def count_trained_on(run: Path, images: ImageStore) -> int:
    """Return how many of the images have the same pixels as a training image of the run.

    The result is 0 if the record has no hashes of the pixels, or if there are too many images to hash.
    """
    recorded = read_trained_images(run)
    if recorded is None or "pixels" not in recorded:
        return 0
    pixels = _hash_pixels(images)
    return 0 if pixels is None else int(np.isin(pixels, recorded["pixels"]).sum())


def with_run_split(run: Path, config: Config, source: Source, say: Callable[[str], None]) -> Source:
    """Hold out all images that the run was not trained on, even if files were added or the folder has moved.

    A folder at another path counts as a copy of the run's images if it has at least half of their file names.

    The source is returned unchanged if it has other images, if it has its own test set, or if nothing has changed. In
    the last case, decoding holds out the same images as in the run.

    Parameters
    ----------
    run
        The run folder.
    config
        The configuration of the run.
    source
        Any images.
    say
        Called with a text if the images have changed or moved.

    Returns
    -------
    Source
        The source. If its images have changed or moved, `held_out` is set.
    """
    recorded = read_trained_images(run) if source.test is None and config.data not in (ARRAY, DATASET) else None
    if recorded is None or str(recorded["fingerprint"]) == source.fingerprint:
        return source
    same_path = source.location == config.data
    names = source.train.names(np.arange(len(source.train)))
    if names is None or "trained" not in recorded:
        if not same_path:
            return source
        raise TwofoldError(
            f"{source.name} has changed since {run} was trained, so its held-out images are no longer known: restore "
            "the earlier images, or pass other images"
        )
    trained = np.isin(_hash_each(os.fsencode(name) for name in names), recorded["trained"])
    if trained.sum() < (2 if same_path else max(2, MIN_SHARED_NAMES * len(recorded["trained"]))):
        return source  # all images were replaced, or another folder happens to have a few of the names
    why = f"has changed since {run} was trained" if same_path else f"has the file names of {run}'s images"
    say(f"{source.name} {why}; all images that were not used for training count as held out")
    return dataclasses.replace(source, held_out=~trained)


def _hash_data(data: Data) -> ImageHashes | None:
    """Return the hashes of all images, or None if there are too many to hash."""
    state, pixels = hashlib.blake2b(digest_size=16), []
    for store in (data.train, data.test) if data.test is not None else (data.train,):
        if (own := _hash_pixels(store)) is None:
            return None
        pixels.append(own)
        state.update(own.tobytes())
        for part in (store.index, store.labels, store.groups):
            state.update(b"none" if part is None else part.cpu().numpy().tobytes())
        if store.objects is not None:
            state.update(store.objects.of_row.numpy().tobytes())
    return ImageHashes(pixels[0], np.concatenate([pixels[0][:0], *pixels[1:]]), state.hexdigest())


def _names_of(data: Data) -> list[str]:
    """Return the names of all images, training images first. Images without a file are named by their index."""
    stores = [data.train] if data.test is None else [data.train, data.test]
    return [name for store in stores for name in store.files or (f"image {index}" for index in store.index.tolist())]


def _describe_copies(hashes: ImageHashes) -> str:
    copies = len(hashes.train) - len(np.unique(hashes.train))
    leaked = int(np.isin(hashes.test, hashes.train).sum())
    found = []
    if copies:
        are_copies = "is an exact copy of another one" if copies == 1 else "are exact copies of other ones"
        found.append(f"{copies:,} of {len(hashes.train):,} training images {are_copies}")
    if leaked:
        are_copies = "is a copy of a training image" if leaked == 1 else "are copies of training images"
        found.append(f"{leaked:,} of {len(hashes.test):,} held-out images {are_copies}, so accuracies are too high")
    return "; ".join(found)


def _hash_pixels(store: ImageStore) -> np.ndarray | None:
    """Return a hash of each image, uint64 `[n]`, or None if there are too many to hash."""
    if store.images.nbytes > MAX_HASHED_BYTES:
        return None
    return _hash_each(image.tobytes() for image in store.images.cpu().numpy())


def _hash_each(contents: Iterable[bytes]) -> np.ndarray:
    digests = (hashlib.blake2b(content, digest_size=8).digest() for content in contents)
    return np.fromiter(digests, "S8").view(np.uint64)
