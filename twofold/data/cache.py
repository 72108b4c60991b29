"""Decoded images on disk: `KEY.u8` holds uint8 rows one after the other, `KEY.json` says what they are.

Both are written aside and renamed when complete, the JSON last: a pair that can be read is whole.
"""

import json
import os
import tempfile
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from twofold.errors import TwofoldError

FORMAT = 1  # a new number where decoding changes, so that older files are not taken for the same pixels
ABANDONED_SECONDS = 24 * 3600


@dataclass(frozen=True)
class Decoded:
    images: Tensor  # uint8 [n, C, H, W]
    skipped: dict[int, str]  # number among the rows that were asked for → reason


def folder() -> Path:
    return Path(os.environ.get("TWOFOLD_CACHE") or "~/.cache/twofold").expanduser()


def recall(key: str, row_shape: tuple[int, ...]) -> Decoded | None:
    """What `record` kept under this key; None where there is nothing, or not all of it."""
    pixels, sidecar = _paths(key)
    try:
        record = json.loads(sidecar.read_text())
        count, skipped = record["count"], {int(row): str(reason) for row, reason in record["skipped"]}
        if pixels.stat().st_size != count * int(np.prod(row_shape)):
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Decoded(mapped(np.memmap(pixels, np.uint8, "r", shape=(count, *row_shape))), skipped)


def record(key: str, row_shape: tuple[int, ...], rows: Iterable[np.ndarray | str]) -> Decoded:
    """Write the rows as they come, one at a time, and map the file; a text in place of a row says why it is missing."""
    pixels, sidecar = _paths(key)
    skipped: dict[int, str] = {}
    count = 0
    partial: Path | None = None
    try:
        pixels.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(pixels.parent)
        # Plain writes, not a mapping: a full disk is then an error, and not a signal that ends the process.
        with tempfile.NamedTemporaryFile(dir=pixels.parent, suffix=".partial", delete=False) as file:
            partial = Path(file.name)
            for number, row in enumerate(rows):
                if isinstance(row, str):
                    skipped[number] = row
                else:
                    file.write(row.tobytes())
                    count += 1
            file.flush()
            os.fsync(file.fileno())
        if not count:
            return Decoded(torch.empty((0, *row_shape), dtype=torch.uint8), skipped)
        os.replace(partial, pixels)
        text = json.dumps({"count": count, "skipped": list(skipped.items())})
        partial = sidecar.with_suffix(f".{os.getpid()}.partial")
        partial.write_text(text)
        os.replace(partial, sidecar)
        return Decoded(mapped(np.memmap(pixels, np.uint8, "r", shape=(count, *row_shape))), skipped)
    except OSError as error:
        raise TwofoldError(
            f"cannot write decoded images to {pixels.parent}: {error.strerror or error}; "
            "make room there, or set TWOFOLD_CACHE to another folder"
        ) from error
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)


def mapped(array: np.ndarray) -> Tensor:
    """A tensor over a read-only array, without a copy. Nothing writes into a store's images."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def _paths(key: str) -> tuple[Path, Path]:
    return folder() / f"{key}-{FORMAT}.u8", folder() / f"{key}-{FORMAT}.json"


def _remove_abandoned(where: Path) -> None:
    """What a killed process left behind; one that still runs has written to its file within the day."""
    for partial in where.glob("*.partial"):
        if partial.stat().st_mtime < time.time() - ABANDONED_SECONDS:
            partial.unlink(missing_ok=True)
