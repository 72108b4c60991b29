"""What the JSON file next to an exported encoder states: how to load it and how to prepare images."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from twofold.checksums import seal
from twofold.data.decode import REDUCING_GAP
from twofold.data.pixel_range import PERCENTILES
from twofold.errors import TwofoldError
from twofold.files import write_atomically, writing
from twofold.models import feature_dimension
from twofold.verbs.export_formats import FORMATS, Encode, Exported
from twofold.version import __version__

TOLERANCE = 1e-4  # the largest allowed difference of features, relative to the largest feature (at least 1)


def write_facts(
    out: Path,
    exported: Exported,
    format: str,
    *,
    adapter: str | list[str] | None,
    difference: float | None,
    trained: tuple[str, int] | None,
) -> dict[str, Any]:
    """Write the JSON file that describes the exported file `out`, and return its content.

    `adapter` says how to apply the adapter, if there is one. `trained` has the method and the epochs of a run.
    """
    channels, *sides = exported.example.shape[1:]
    method, epochs = trained or (None, None)
    facts = {
        "file": out.name,
        "format": format,
        "encoder": exported.description["encoder"],
        "stem": exported.description["stem"],
        "method": method,
        "epochs": epochs,
        "adapter": adapter,
        "input": {"name": "images", "type": "float32", "shape": ["batch", channels, *sides]},
        "output": {
            "name": "features",
            "type": "float32",
            "shape": ["batch", feature_dimension(exported.encoder, channels, sides[0])],
        },
        "preprocessing": preprocessing(exported.description),
        "load": FORMATS[format].how_to_load(exported, out.name),
        "largest_difference": difference,
        "twofold": __version__,
    }
    with writing(sidecar(out)):
        write_atomically(sidecar(out), json.dumps(seal(facts), indent=2) + "\n")
    return facts


def how_to_adapt(file: str | None) -> str | list[str]:
    """Return how to apply the adapter: nothing to do, or lines of Python for the file of the adapter."""
    if file is None:
        return "inside: the features are those after the adapter"
    return [
        "from safetensors.torch import load_file",
        f"adapter = load_file({file!r})",
        "features = (encoder(images) - adapter['mean']) @ adapter['matrix'].T",
    ]


def sidecar(out: Path) -> Path:
    """Return the path of the JSON file for an exported encoder."""
    return out.with_name(f"{out.name}.json")


def preprocessing(description: dict[str, Any]) -> dict[str, Any]:
    """Return the steps of the preprocessing in order. The lines in `pillow` give exactly the pixels of training."""
    size, channels = description["image_size"], description["channels"]
    return {
        "orientation": "upright: the EXIF orientation is applied; transparent pixels become white",
        "depth": depth_in_words(description.get("pixel_range", "type")),
        "channels": {1: "grey", 3: "RGB"}.get(channels, f"{channels}, as in training"),
        "crop": "the central square with the length of the shorter side; the box of the resize, not cropped before",
        "resize": [size, size],
        "interpolation": "bilinear, antialiased: Pillow's resize with Image.Resampling.BILINEAR, "
        f"box=(left, top, left + side, top + side) and reducing_gap={REDUCING_GAP}; others give different pixels",
        "pillow": opening(size, channels, description.get("pixel_range", "type")) + resizing(size),
        "scale": "divide by 255",
        "mean": description["mean"],
        "std": description["std"],
    }


def depth_in_words(pixel_range: Any) -> str:
    if pixel_range == "type":
        return "8 bits: 16-bit values become (value + 128) // 257, floats from 0 to 1 become round(255 * value)"
    if pixel_range == "image":
        return "8 bits: each image of more than 8 bits from its 0.1th to its 99.9th percentile, with pixel_range=image"
    low, high = pixel_range
    return (
        f"8 bits: values of images of more than 8 bits become round(255 * (value - {low:g}) / ({high:g} - {low:g})), "
        "from 0 to 255"
    )


def opening(size: int, channels: int, pixel_range: Any = "type") -> list[str]:
    """Return lines of Python that open the file at `path`, or one channel of an array, as an upright 8-bit image."""
    if channels not in (1, 3):
        return ["from PIL import Image", "image = Image.fromarray(channel)  # uint8 [H, W], one channel at a time"]
    return [
        "import numpy as np",
        "from PIL import Image, ImageOps",
        "image = Image.open(path)",
        f"image.draft(None, ({REDUCING_GAP * size}, {REDUCING_GAP * size}))  # decodes large JPEG files smaller",
        "image = ImageOps.exif_transpose(image)",
        *converting(pixel_range),
        "if image.has_transparency_data:",
        "    image = Image.alpha_composite(Image.new('RGBA', image.size, 'white'), image.convert('RGBA'))",
        "image = image if image.mode == 'L' else image.convert('RGB')",
        f"image = image.convert('{'L' if channels == 1 else 'RGB'}')",
    ]


def converting(pixel_range: Any) -> list[str]:
    """Return lines of Python that convert an image of more than 8 bits."""
    if pixel_range == "type":
        return [
            "if image.mode.startswith('I'):  # 16 bits",
            "    wide = np.asarray(image).astype('int32')",
            "    image = Image.fromarray(((wide + 128) // 257).astype('uint8'))",
            "elif image.mode == 'F':  # from 0 to 1",
            "    image = Image.fromarray(np.rint(np.asarray(image) * 255).astype('uint8'))",
        ]
    limits = list(PERCENTILES) if pixel_range == "image" else [float(value) for value in pixel_range]
    return [
        "if image.mode.startswith('I') or image.mode == 'F':",
        "    wide = np.asarray(image)",
        "    wide = wide.astype('f8' if wide.dtype.itemsize > 2 else 'f4')",
        f"    low, high = np.percentile(wide, {limits}).tolist()  # of a sample, if the image has many pixels"
        if pixel_range == "image"
        else f"    low, high = {limits}",
        "    image = Image.fromarray(np.rint(((wide - low) * (255 / (high - low))).clip(0, 255)).astype('uint8'))",
    ]


def resizing(size: int) -> list[str]:
    """Return lines of Python that crop the central square of an image and resize it."""
    return [
        "side = min(image.size)",
        "left, top = (image.width - side) // 2, (image.height - side) // 2",
        "box = (left, top, left + side, top + side)",
        f"image = image.resize(({size}, {size}), Image.Resampling.BILINEAR, box=box, reducing_gap={REDUCING_GAP})",
    ]


def largest_difference(encoder: nn.Module, written: Encode | None, example: Tensor) -> float | None:
    """Return the largest difference in features for batches of two sizes, or None if the file cannot be run here."""
    if written is None:
        return None
    difference, scale = 0.0, 1.0
    with torch.no_grad():
        for images in (example, torch.cat([example.flip(3), example, example.flip(2)])):
            expected = encoder(images)
            scale = max(scale, expected.abs().max().item())
            difference = max(difference, (written(images) - expected).abs().max().item())
    if not difference <= TOLERANCE * scale:
        raise TwofoldError(f"the features of the exported encoder differ by {difference:g}: the file was deleted")
    return difference
