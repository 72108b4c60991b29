"""`export`: the encoder as a file for other programs, and beside it a JSON file that says how to load and feed it."""

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from twofold.data.decode import REDUCING_GAP
from twofold.errors import TwofoldError, nearest
from twofold.files import atomic, refuse_unwritable, write_atomically, writing
from twofold.models import feature_dimension
from twofold.runs.run import Run
from twofold.runs.weights import load_encoder, read_encoder
from twofold.verbs.export_formats import FORMATS, Encode, Exported
from twofold.version import __version__

TOLERANCE = 1e-4  # how far a written encoder may be from the one in memory, of features of size 1


def export(
    run: str | Path | Run, format: str, out: str | Path | None = None, *, encoder: nn.Module | None = None
) -> Path:
    """Write a run's encoder as `safetensors`, `torchscript` or `onnx`, read it again, and compare its features.

    `encoder` is needed where the run trained a module of your own.
    """
    if format not in FORMATS:
        raise TwofoldError(f"unknown format '{format}'{nearest(format, list(FORMATS))}")
    how = FORMATS[format]
    path = Path(run)
    config = Run(path).config
    network = load_encoder(path, encoder=encoder)
    preprocess: Any = network.preprocess
    del network.preprocess  # it is for people; the file is for tensors
    size = (preprocess.channels, preprocess.image_size, preprocess.image_size)
    example = torch.randn(2, *size, generator=torch.Generator().manual_seed(0))
    exported = Exported(network, read_encoder(path)[1], example)
    out = path / f"encoder{how.ending}" if out is None else Path(out)
    if not out.resolve().parent.is_dir() or out.is_dir():
        raise TwofoldError(f"--out {out}: give the name of a file, in a folder that exists")
    refuse_unwritable(out)
    with writing(out), atomic(out, durable=True) as aside, quiet_torch():
        how.write(exported, aside)
        difference = largest_difference(network, how.read(exported, aside), example)
    facts = {
        "file": out.name,
        "format": format,
        "encoder": exported.description["encoder"],
        "stem": exported.description["stem"],
        "method": config.method,
        "epochs": config.epochs,
        "input": {"name": "images", "type": "float32", "shape": ["batch", *size]},
        "output": {
            "name": "features",
            "type": "float32",
            "shape": ["batch", feature_dimension(network, *size[:2])],
        },
        "preprocessing": preprocessing(exported.description),
        "load": how.how_to_load(exported, out.name),
        "largest_difference": difference,
        "twofold": __version__,
    }
    with writing(sidecar(out)):
        write_atomically(sidecar(out), json.dumps(facts, indent=2) + "\n")
    return out


def sidecar(out: Path) -> Path:
    return out.with_name(f"{out.name}.json")


def preprocessing(description: dict[str, Any]) -> dict[str, Any]:
    """In the order in which it is done; `pillow` are the lines that give the very pixels of training."""
    size, channels = description["image_size"], description["channels"]
    return {
        "orientation": "upright: EXIF is applied; transparent parts are white",
        "depth": "8 bits: of 16 bits (value + 128) // 257, of floats from 0 to 1 the nearest to 255 times the value",
        "channels": {1: "grey", 3: "RGB"}.get(channels, f"{channels}, as in training"),
        "crop": "the middle square, as wide as the shorter side: the box of the resize, not cut out before",
        "resize": [size, size],
        "interpolation": "bilinear, antialiased: Pillow's resize with Image.Resampling.BILINEAR, "
        f"box=(left, top, left + side, top + side) and reducing_gap={REDUCING_GAP}; others give slightly other pixels",
        "pillow": opening(size, channels) + resizing(size),
        "scale": "divide by 255",
        "mean": description["mean"],
        "std": description["std"],
    }


def opening(size: int, channels: int) -> list[str]:
    """Lines that make an upright image of 8 bits, of a file at `path`, or of one channel of an array."""
    if channels not in (1, 3):
        return ["from PIL import Image", "image = Image.fromarray(channel)  # uint8 [H, W], each channel by itself"]
    return [
        "import numpy as np",
        "from PIL import Image, ImageOps",
        "image = Image.open(path)",
        f"image.draft(None, ({REDUCING_GAP * size}, {REDUCING_GAP * size}))  # large JPEG files are decoded smaller",
        "image = ImageOps.exif_transpose(image)",
        "if image.mode.startswith('I'):  # 16 bits",
        "    wide = np.asarray(image).astype('int32')",
        "    image = Image.fromarray(((wide + 128) // 257).astype('uint8'))",
        "elif image.mode == 'F':  # from 0 to 1",
        "    image = Image.fromarray(np.rint(np.asarray(image) * 255).astype('uint8'))",
        "if image.has_transparency_data:",
        "    image = Image.alpha_composite(Image.new('RGBA', image.size, 'white'), image.convert('RGBA'))",
        "image = image if image.mode == 'L' else image.convert('RGB')",
        f"image = image.convert('{'L' if channels == 1 else 'RGB'}')",
    ]


def resizing(size: int) -> list[str]:
    return [
        "side = min(image.size)",
        "left, top = (image.width - side) // 2, (image.height - side) // 2",
        "box = (left, top, left + side, top + side)",
        f"image = image.resize(({size}, {size}), Image.Resampling.BILINEAR, box=box, reducing_gap={REDUCING_GAP})",
    ]


def largest_difference(encoder: nn.Module, written: Encode | None, example: Tensor) -> float | None:
    """The largest difference in features, for batches of two sizes; None where the file cannot be run here."""
    if written is None:
        return None
    difference, scale = 0.0, 1.0
    with torch.no_grad():
        for images in (example, torch.cat([example.flip(3), example, example.flip(2)])):
            expected = encoder(images)
            scale = max(scale, expected.abs().max().item())
            difference = max(difference, (written(images) - expected).abs().max().item())
    if not difference <= TOLERANCE * scale:
        raise TwofoldError(f"the written encoder gives other features (by {difference:g}), and was not kept")
    return difference


@contextmanager
def quiet_torch() -> Iterator[None]:
    """torch speaks of its own plans for these formats, and of libraries that the encoder does not use."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        logger.setLevel(level)
