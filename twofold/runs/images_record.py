"""Reads `images.npz`, the record of the images that a run was trained on. `provenance.py` writes and compares it."""

from pathlib import Path

import numpy as np

from twofold.array_files import read_members
from twofold.errors import TwofoldError

IMAGES_FILE = "images.npz"
ARRAYS = "arrays"  # the names of all other arrays
# The number of dimensions and the kind of numbers of the arrays in images.npz.
IMAGES_KINDS = dict.fromkeys(("fingerprint", "order"), (0, "U"))
IMAGES_KINDS |= dict.fromkeys(("trained", "pixels", "names", "contents"), (1, "u"))


def has_recorded_images(run: Path) -> bool:
    """Whether the run folder has a record of its images."""
    return (run / IMAGES_FILE).exists()


def images_fingerprint(run: Path) -> str | None:
    """Return the fingerprint of the images that the run was trained on, or None if it has no record of them."""
    recorded = read_trained_images(run)
    return None if recorded is None else str(recorded["fingerprint"])


def read_trained_images(run: Path) -> dict[str, np.ndarray] | None:
    """Return the arrays of images.npz, or None if the run has none.

    `provenance.record_trained_images` writes the file and describes its content.
    """
    if not has_recorded_images(run):
        return None
    try:
        record = read_members(run / IMAGES_FILE)
        if ARRAYS in record and set(record.pop(ARRAYS).ravel().tolist()) != record.keys():
            raise ValueError("arrays are missing")
        kinds = {name: (array.ndim, array.dtype.kind) for name, array in record.items() if name in IMAGES_KINDS}
        if "fingerprint" not in kinds or any(kind != IMAGES_KINDS[name] for name, kind in kinds.items()):
            raise ValueError("it has other arrays than Twofold writes")
        if "names" in record and record["names"].tobytes().count(b"\0") + 1 != len(record.get("contents", ())):
            raise ValueError("it has other names than contents")
    except (OSError, ValueError) as error:
        raise TwofoldError(
            f"{run / IMAGES_FILE}, the record of the training images, cannot be read: {error}; restore the file from a "
            "copy of the run folder"
        ) from None
    return record
