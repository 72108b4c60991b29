"""images.npz of a run folder, read: a fingerprint of the images that the run was trained on, and hashes of each.

`provenance.remember` writes it. It is read here, without torch, since a page that compares runs needs the fingerprint.
"""

import zipfile
from pathlib import Path

import numpy as np

from twofold.errors import TwofoldError

FILE = "images.npz"


def is_remembered(run: Path) -> bool:
    return (run / FILE).exists()


def fingerprint_of(run: Path) -> str | None:
    """Of the images that it was trained on; None where that was not kept."""
    kept = read_trained_images(run)
    return None if kept is None else str(kept["fingerprint"])


def read_trained_images(run: Path) -> dict[str, np.ndarray] | None:
    """None of a run that kept no such file."""
    if not is_remembered(run):
        return None
    try:
        with np.load(run / FILE, allow_pickle=False) as file:
            return dict(file)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise TwofoldError(f"{run / FILE}, which says what the run was trained on, cannot be read: {error}") from None
