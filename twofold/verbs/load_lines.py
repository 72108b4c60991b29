"""Lines of Python that load the encoder of a run, for the end of the run."""

import os
from pathlib import Path

from twofold.data.readers.folder import HEIF
from twofold.models import has_name
from twofold.train.trainer import Trainer


def lines_to_load(trainer: Trainer, run: Path) -> list[str]:
    """Return five lines that load the encoder and compute the features of an image.

    They can be run in the current folder. For a module of the user the list is empty, because no line can name its
    class.
    """
    if not has_name(trainer.config.encoder):
        return []
    image = first_file(trainer)
    shape = (1, trainer.data.train.images.shape[1], trainer.config.image_size, trainer.config.image_size)
    return [
        "import torch, twofold" if image is None else "import PIL.Image, torch, twofold",
        f"encoder = twofold.load_encoder({str(run)!r})",
        f"image = torch.zeros({shape}, dtype=torch.uint8)  # your pixels"
        if image is None
        else f"image = PIL.Image.open({str(image)!r})",
        "with torch.inference_mode():",
        "    features = encoder(encoder.preprocess(image))",
    ]


def first_file(trainer: Trainer) -> Path | None:
    """Return the path of a training image, relative to the current folder if it is below; None if there is no file.

    It is one that Pillow opens by itself.
    """
    data = Path(trainer.config.data)
    names = [name for name in trainer.data.train.files or () if Path(name).suffix.lower() not in HEIF]
    if not names or trainer.data.train.images.shape[1] not in (1, 3):
        return None
    path = (data if data.is_dir() else data.parent) / names[0]
    if not path.is_file():
        return None
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else Path(relative)
