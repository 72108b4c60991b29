"""Measure how fast one core reads JPEG files, compared with libjpeg-turbo's scaled decoding alone.

    python -m benchmarks.reading [--rounds 7]

The cases are a photograph of 12 megapixels that becomes a square of 224 pixels, one of 0.2 megapixels, as in ImageNet,
and a small image that becomes a square of 64 pixels. Decoding alone opens the file from memory, decodes it at the same
scale (Pillow's draft mode), and does nothing else. Decoding and resizing also calls Pillow's antialiased resize on the
middle square. It is the least that reading can take with these pixels. Reading also checks the file, applies its
orientation, and returns an array. Two random crops with all augmentations of SimCLR follow. The clock counts the CPU
time of the process, and the functions take turns.
"""

import argparse
import io
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image

from benchmarks.augmentation import VIEWS, twofold_views
from benchmarks.results import Table, keep
from twofold.data.decode import REDUCING_GAP, decode_image

# Width, height and JPEG quality of the file, the side of the square, and files read per round.
CASES = {
    "12 megapixels": (4000, 3000, 90, 224, 2),
    "0.2 megapixels": (500, 375, 90, 224, 16),
    "small": (84, 64, 80, 64, 200),
}


def photograph(width: int, height: int, quality: int) -> bytes:
    """Return a JPEG file of coloured blocks with noise, which compresses about as well as a photograph."""
    generator = np.random.default_rng(0)
    blocks = generator.integers(0, 256, (height // 16, width // 16, 3), dtype=np.uint8)
    image = Image.fromarray(blocks).resize((width, height), Image.Resampling.BICUBIC)
    noisy = np.asarray(image, np.int16) + generator.integers(-8, 9, (height, width, 3), dtype=np.int16)
    file = io.BytesIO()
    Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=quality)
    return file.getvalue()


def decode_only(file: bytes, size: int) -> Image.Image:
    image = Image.open(io.BytesIO(file))
    image.draft(None, (REDUCING_GAP * size, REDUCING_GAP * size))
    image.load()
    return image


def decode_and_resize(file: bytes, size: int) -> None:
    image = decode_only(file, size)
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    box = (left, top, left + side, top + side)
    image.resize((size, size), Image.Resampling.BILINEAR, box=box, reducing_gap=REDUCING_GAP)


def measure(name: str, rounds: int) -> dict[str, Any]:
    width, height, quality, size, count = CASES[name]
    file, views = photograph(width, height, quality), twofold_views(size)

    def with_crops() -> None:
        views(torch.from_numpy(np.stack([decode_image(file, size, 3) for _ in range(count)])))

    functions: dict[str, Callable[[], None]] = {
        "alone": lambda: [decode_only(file, size) for _ in range(count)] and None,
        "resized": lambda: [decode_and_resize(file, size) for _ in range(count)] and None,
        "reading": lambda: [decode_image(file, size, 3) for _ in range(count)] and None,
        "with crops": with_crops,
    }
    times: dict[str, list[float]] = {key: [] for key in functions}
    for number in range(rounds + 1):
        for key, function in functions.items():
            start = time.process_time()
            function()
            if number > 0:  # the first round is a warm-up
                times[key].append(time.process_time() - start)

    def times_as_long(base: str) -> float:
        return median(reading / other for reading, other in zip(times["reading"], times[base], strict=True))

    return {
        "case": name,
        "file KB": len(file) / 1000,
        "decoding alone, images/s": count / median(times["alone"]),
        "decoding and resizing, images/s": count / median(times["resized"]),
        "reading, images/s": count / median(times["reading"]),
        "times decoding": times_as_long("alone"),
        "times decoding and resizing": times_as_long("resized"),
        f"with {VIEWS} crops, images/s": count / median(times["with crops"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--note", default="", help="a remark for the record, such as what else used the machine")
    parser.add_argument("--commit", default="", help="the commit to record, if git is not available")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    torch.set_num_threads(1)
    speeds = ("decoding alone, images/s", "decoding and resizing, images/s", "reading, images/s")
    ratios = ("times decoding", "times decoding and resizing")
    table = Table("case", "file KB", *speeds, *ratios, f"with {VIEWS} crops, images/s")
    for name in CASES:
        table.add(measure(name, options.rounds))
    keep("reading-cpu", table, {"rounds": options.rounds, "note": options.note}, "cpu", options.commit, options.out)


if __name__ == "__main__":
    main()
