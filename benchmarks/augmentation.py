"""Measure the augmentation of SimCLR on a CPU, compared with torchvision v2 and with kornia.

    python -m benchmarks.augmentation [--sizes 32,96,224] [--threads 1] [--rounds 5]

Run it with the Python of an environment that has torchvision and kornia. All three take uint8 images in memory and
make two normalised float32 views of each: a random crop, a flip, colour jitter, grayscale and, for images of more than
80 pixels, a Gaussian blur, with the same probabilities and ranges. Twofold and kornia take a batch, and torchvision one
image after another, because it draws one set of parameters for each call. In each round they take turns. With one
thread, the clock counts the CPU time of the process; with more, it is the wall clock.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from benchmarks.results import Table, keep
from twofold.config import Augment
from twofold.data.augment import Augmenter
from twofold.device import kept_memory

VIEWS, SCALE = 2, (0.08, 1.0)
JITTER = (0.8, 0.8, 0.8, 0.2)  # brightness, contrast, saturation, hue
BLURRED_FROM, SIGMA = 81, (0.1, 2.0)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PIXELS = 2**21  # of the images of a batch
Views = Callable[[Tensor], Any]


def twofold_views(size: int) -> Views:
    brightness, contrast, saturation, hue = JITTER
    augment = Augment(
        crop_scale=SCALE,
        brightness=brightness,
        contrast=contrast,
        saturation=saturation,
        hue=hue,
        blur=0.5 if size >= BLURRED_FROM else 0.0,
        blur_sigma=SIGMA,
    )
    mean, std = torch.tensor(MEAN), torch.tensor(STD)
    augmenter = Augmenter(augment, views=VIEWS, image_size=size, mean=mean, std=std, seed=0).for_cpu()
    clock = torch.zeros((), dtype=torch.int64)

    def views(images: Tensor) -> Tensor:
        clock.add_(1)
        return augmenter(images, torch.arange(len(images)), clock)

    return views


def kernel_size(size: int) -> int:
    """A tenth of the image, as in SimCLR, and odd."""
    return size // 20 * 2 + 1


def torchvision_views(size: int) -> Views:
    from torchvision.transforms import v2

    blur = [v2.RandomApply([v2.GaussianBlur(kernel_size(size), SIGMA)], p=0.5)] if size >= BLURRED_FROM else []
    transform = v2.Compose(
        [
            v2.RandomResizedCrop(size, scale=SCALE, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.RandomApply([v2.ColorJitter(*JITTER)], p=0.8),
            v2.RandomGrayscale(0.2),
            *blur,
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )
    return lambda images: torch.stack([transform(image) for _ in range(VIEWS) for image in images])


def kornia_views(size: int) -> Views:
    from kornia import augmentation as K

    kernel = (kernel_size(size), kernel_size(size))
    blur = [K.RandomGaussianBlur(kernel, SIGMA, p=0.5)] if size >= BLURRED_FROM else []
    transform = K.AugmentationSequential(
        K.RandomResizedCrop((size, size), scale=SCALE),
        K.RandomHorizontalFlip(),
        K.ColorJitter(*JITTER, p=0.8),
        K.RandomGrayscale(p=0.2),
        *blur,
        K.Normalize(torch.tensor(MEAN), torch.tensor(STD)),
        data_keys=["input"],
    )
    return lambda images: [transform(images.float() / 255) for _ in range(VIEWS)]


MAKERS = {"Twofold": twofold_views, "torchvision v2": torchvision_views, "kornia": kornia_views}


def measure(size: int, threads: int, rounds: int) -> dict[str, Any]:
    clock = time.process_time if threads == 1 else time.perf_counter
    batch = min(max(PIXELS // size**2, 16), 256)
    images = torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8)
    makers = {name: make(size) for name, make in MAKERS.items()}
    times: dict[str, list[float]] = {name: [] for name in makers}
    for number in range(rounds + 1):
        for name, views in makers.items():
            start = clock()
            views(images)
            if number > 0:  # the first round is a warm-up
                times[name].append(clock() - start)
    row = {"pixels": size, "batch": batch}
    row |= {f"{name}, views/s": VIEWS * batch / median(values) for name, values in times.items()}
    for name in list(times)[1:]:
        row[f"times {name}"] = median(other / own for other, own in zip(times[name], times["Twofold"], strict=True))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="32,96,224")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--note", default="", help="a remark for the record, such as what else used the machine")
    parser.add_argument("--commit", default="", help="the commit to record, if git is not available")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    ratios = [f"times {name}" for name in list(MAKERS)[1:]]
    table = Table("pixels", "batch", *(f"{name}, views/s" for name in MAKERS), *ratios)
    with kept_memory():
        for size in options.sizes.split(","):
            table.add(measure(int(size), options.threads, options.rounds))
    settings = {"threads": options.threads, "rounds": options.rounds, "note": options.note}
    keep("augmentation-cpu", table, settings, "cpu", options.commit, options.out)


if __name__ == "__main__":
    main()
