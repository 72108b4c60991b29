"""Measure how many added copies `twofold duplicates` finds, and how many other images it reports, by threshold.

    python -m benchmarks.duplicates RUN [--data digits] [--images 2000]

For 200 images, one copy of each kind is made: as a JPEG file, resized, darker or brighter. The table shows the fraction
of copies that are linked to their original. "other images" is the number of original images that are linked to another
original. Some of these links are correct, because datasets contain near-copies of their own.
"""

import argparse
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageEnhance
from torch import Tensor

from benchmarks.results import Table, keep
from twofold.data.duplicates import BLOCK, pairs_above, whitened_features
from twofold.data.open import open_source
from twofold.evaluate.duplicates import Levelled
from twofold.runs.run import Run
from twofold.runs.weights import load_encoder

COPIED = 200
THRESHOLDS = (0.85, 0.9, 0.93, 0.95, 0.975, 0.99)


def as_jpeg(image: Image.Image) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=75)
    return Image.open(file).convert(image.mode)


def resized(factor: float) -> Callable[[Image.Image], Image.Image]:
    """Return a function that resizes an image and back, with the interpolation of the image store."""
    return lambda image: image.resize([round(factor * side) for side in image.size], Image.Resampling.BICUBIC).resize(
        image.size, Image.Resampling.BILINEAR
    )


KINDS: dict[str, Callable[[Image.Image], Image.Image]] = {
    "the same": lambda image: image,
    "JPEG, quality 75": as_jpeg,
    "1.5 times larger": resized(1.5),
    "0.75 of the size": resized(0.75),
    "brightness 0.8": lambda image: ImageEnhance.Brightness(image).enhance(0.8),
    "brightness 1.15": lambda image: ImageEnhance.Brightness(image).enhance(1.15),
}


def features_of(run: Path, images: list[Image.Image]) -> Tensor:
    encoder = load_encoder(run)
    preprocess = Levelled(encoder.preprocess)
    mode = "L" if encoder.preprocess.channels == 1 else "RGB"
    with torch.no_grad():
        return torch.cat(
            [
                encoder(preprocess(stacked([image.convert(mode) for image in images[start : start + 256]])))
                for start in range(0, len(images), 256)
            ]
        )


def stacked(images: list[Image.Image]) -> Tensor:
    pixels = np.stack([np.asarray(image) for image in images])
    return torch.from_numpy(pixels[:, None] if pixels.ndim == 3 else pixels.transpose(0, 3, 1, 2))


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--data-dir", default="data")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", default="", help="the commit to record, if git is not available")
    options = parser.parse_args(words)
    pixels = open_source(options.data, data_dir=options.data_dir).train.images[: options.images]
    originals = [Image.fromarray(image.squeeze(2) if image.shape[2] == 1 else image) for image in pixels]
    chosen = np.random.default_rng(0).choice(len(originals), COPIED, replace=False)
    table = Table("copies", *(f"{threshold:g}" for threshold in THRESHOLDS))
    for kind, change in KINDS.items():
        rows = whitened_features(features_of(options.run, originals + [change(originals[row]) for row in chosen]))
        own = (rows[chosen] * rows[len(originals) :]).sum(1)
        table.add({"copies": kind} | {f"{t:g}": (own >= t).double().mean().item() for t in THRESHOLDS})
    rows = whitened_features(features_of(options.run, originals))
    found = {}
    for threshold in THRESHOLDS:
        pairs = [torch.cat([first, second]) for first, second, _ in pairs_above(rows, threshold, BLOCK)]
        found[f"{threshold:g}"] = len(torch.cat(pairs).unique()) if pairs else 0
    table.add({"copies": "other images"} | found)
    config = Run(options.run).config
    settings = {
        "data": options.data,
        "images": len(originals),
        "run": f"{config.method}, {config.encoder}, {config.epochs} epochs",
        "largest similarity of two originals": max(value.max().item() for *_, value in pairs_above(rows, 0.5, BLOCK)),
    }
    print(keep(f"duplicates-{options.data}", table, settings, "cpu", options.commit, options.out))


if __name__ == "__main__":
    main()
