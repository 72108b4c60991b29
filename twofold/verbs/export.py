"""`export`: write the encoder for other programs, with a JSON file that states how to load it and prepare images."""

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
from twofold.data.pixel_range import PERCENTILES
from twofold.display import Display
from twofold.errors import TwofoldError, nearest
from twofold.evaluate.encoder import is_pretrained
from twofold.evaluate.opened import What, describe_encoder, open_any
from twofold.files import atomic, refuse_unwritable, write_atomically, writing
from twofold.models import feature_dimension
from twofold.models.adapter import AdaptedEncoder
from twofold.models.onnx_encoder import OnnxEncoder
from twofold.runs.classifier_file import is_classifier
from twofold.runs.folder import adapter_file
from twofold.runs.run import is_encoder_folder
from twofold.runs.weights import copy_adapter, encoder_file
from twofold.verbs.export_classifier import export_classifier
from twofold.verbs.export_formats import FORMATS, Encode, Exported
from twofold.version import __version__

TOLERANCE = 1e-4  # the largest allowed difference of features, relative to the largest feature (at least 1)


def export(
    run: What,
    format: str,
    out: str | Path | None = None,
    *,
    data: Any = None,
    encoder: str | nn.Module | None = None,
    image_size: int | None = None,
    adapter: bool = True,
) -> Path:
    """Export an encoder for use without Twofold.

    Twofold loads the file again and verifies that its features agree to 1e-4. It verifies ONNX files only if
    onnxruntime is installed.

    Parameters
    ----------
    run : str, Path, Run or nn.Module
        The encoder: a finished run, a folder that `adapt` wrote, a .safetensors or .onnx file, `efficientnet-lite0` or
        `timm:NAME` with pretrained weights, or a module.
        Or a file that `probe(run, classifier=FILE)` wrote: the exported file then computes features and the
        probabilities of the classes.
    format : {"safetensors", "torchscript", "onnx"}
        The file format.
    out : str or Path, optional
        The file to write, by default `encoder.safetensors`, `.pt` or `.onnx` in the run folder.
    data : optional
        Images, in any form that `pretrain` accepts, for an encoder that does not state its preprocessing. Their mean
        and standard deviation become part of it.
    encoder : str or nn.Module, optional
        For a .safetensors file that Twofold did not write: the name of its architecture. For a run that trained your
        own module: a module of the same class.
    image_size : int, optional
        The size of the images, for an encoder that does not state its own, and for `efficientnet-lite0` or `timm:NAME`.
    adapter : bool
        Include the adapter that `adapt` wrote, if there is one. A .safetensors file keeps the weights of the encoder
        alone; the adapter is written to a file next to it.

    Returns
    -------
    Path
        The file. A second file, with `.json` added to the name, states how to load the encoder and how to prepare
        images.

    Examples
    --------
    >>> twofold.export("runs/frossl-photos-1", "onnx", "encoder.onnx")  # doctest: +SKIP
    """
    if format not in FORMATS:
        raise TwofoldError(f"unknown format '{format}'{nearest(format, list(FORMATS))}")
    if is_classifier(run):
        with quiet_torch():
            module = encoder if isinstance(encoder, nn.Module) else None
            return export_classifier(Path(str(run)), format, out, module, preprocessing)
    how = FORMATS[format]
    opened = open_any(run, data, Display(quiet=True), module=encoder, image_size=image_size, adapter=adapter)
    path, config, preprocess = opened.run, opened.config, opened.preprocess
    if path is None and out is None:
        raise TwofoldError(f"{opened.name} is not in a run folder: pass --out FILE, the file to write")
    network = opened.encoder.network.cpu()
    is_adapted = isinstance(network, AdaptedEncoder)
    plain: Any = network.encoder if isinstance(network, AdaptedEncoder) else network
    if isinstance(plain, OnnxEncoder) and format != "safetensors":
        raise TwofoldError(f"{opened.name} is an ONNX network and cannot be exported as {format}: use the .onnx file")
    if hasattr(plain, "preprocess"):
        del plain.preprocess  # the exported network takes tensors only
    is_apart = format == "safetensors"  # such a file holds the weights of the encoder alone
    network = plain if is_apart else network
    size = (preprocess.channels, preprocess.image_size, preprocess.image_size)
    example = torch.randn(2, *size, generator=torch.Generator().manual_seed(0))
    exported = Exported(network, describe_encoder(run, opened.encoder, encoder), example)
    out = Path(out) if out is not None else (path or Path()) / f"encoder{how.ending}"
    if not out.resolve().parent.is_dir() or out.is_dir():
        raise TwofoldError(f"--out {out}: give the name of a file in a folder that exists")
    refuse_unwritable(out)
    with writing(out), atomic(out, durable=True) as aside, quiet_torch():
        how.write(exported, aside)
        difference = largest_difference(network, how.read(exported, aside), example)
        if is_apart:
            if isinstance(run, nn.Module) or is_pretrained(run):
                adapter_file(out).unlink(missing_ok=True)  # it may belong to other weights
            else:
                copy_adapter(encoder_file(run), out, wanted=is_adapted)
    is_of_run = path is not None and not is_encoder_folder(path)
    facts = {
        "file": out.name,
        "format": format,
        "encoder": exported.description["encoder"],
        "stem": exported.description["stem"],
        "method": config.method if is_of_run else None,
        "epochs": config.epochs if is_of_run else None,
        "adapter": how_to_adapt(adapter_file(out).name if is_apart else None) if is_adapted else None,
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


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Silence torch's notices on deprecations and on libraries that the encoder does not use."""
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
