"""Lines of Python that load an encoder, for the end of a run and for model cards."""

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
    image, size = first_file(trainer), trainer.config.image_size
    assert size is not None
    return lines_of(repr(str(run)), image, trainer.data.train.images.shape[1], size)


def lines_of(arguments: str, image: Path | None, channels: int, size: int) -> list[str]:
    """Return the lines for the given arguments of `load_encoder` and an image file, or for pixels without a file."""
    pixels = f"torch.zeros({(1, channels, size, size)}, dtype=torch.uint8)  # your pixels"
    return [
        "import torch, twofold" if image is None else "import PIL.Image, torch, twofold",
        f"encoder = twofold.load_encoder({arguments})",
        f"image = {pixels if image is None else f'PIL.Image.open({str(image)!r})'}",
        "with torch.inference_mode():",
        "    features = encoder(encoder.preprocess(image))",
    ]


def first_file(trainer: Trainer) -> Path | None:
    """Return the path of a training image, relative to the current folder if it is below; None if there is no file.

    It is one that Pillow opens by itself.
    """
    data = Path(trainer.config.data)
    names = (name for name in trainer.data.train.files or () if Path(name).suffix.lower() not in HEIF)
    name = next(names, None)
    if name is None or trainer.data.train.images.shape[1] not in (1, 3):
        return None
    path = (data if data.is_dir() else data.parent) / name
    if not path.is_file():
        return None
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else Path(relative)
