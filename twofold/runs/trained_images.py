"""Read `images.npz`, the record of the images that a run was trained on.

`provenance.record_trained_images` writes the file and describes its content. This module does not import torch, because
`twofold compare` needs the fingerprint but not torch.
"""

import zipfile
from pathlib import Path

import numpy as np

from twofold.errors import TwofoldError

IMAGES_FILE = "images.npz"


def has_recorded_images(run: Path) -> bool:
    """Whether the run folder has a record of its images."""
    return (run / IMAGES_FILE).exists()


def images_fingerprint(run: Path) -> str | None:
    """Return the fingerprint of the images that the run was trained on, or None if it has no record of them."""
    recorded = read_trained_images(run)
    return None if recorded is None else str(recorded["fingerprint"])


def read_trained_images(run: Path) -> dict[str, np.ndarray] | None:
    """Return the arrays of the record, or None if the run has none."""
    if not has_recorded_images(run):
        return None
    try:
        with np.load(run / IMAGES_FILE, allow_pickle=False) as file:
            return dict(file)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise TwofoldError(
            f"{run / IMAGES_FILE}, the record of the training images, cannot be read: {error}; restore the file from a "
            "copy of the run folder"
        ) from None
