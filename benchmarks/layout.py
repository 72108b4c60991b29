"""Compare the speed of the two memory formats on a CPU: contiguous and channels-last.

    python -m benchmarks.layout [--threads 1] [--rounds 9]

The training step of FroSSL is timed in both formats, which take turns. Features are timed as `twofold embed` computes
them, with contiguous weights. The first case is the digits demo; the others use random images. The records of
2026-11-16 have other names for the two formats.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks.results import Table, keep
from benchmarks.throughput import build, product_step, seconds_per_step
from twofold.train import trainer as training
from twofold.train.trainer import Trainer

FEATURE_BATCH, FEATURE_PIXELS = 512, 2**20  # the batch of `embed`, smaller for larger images to save time
LAYOUTS = {"contiguous": torch.contiguous_format, "channels-last": torch.channels_last}
# Data, encoder, pixels, batch size, keys. The demo has its own batch size.
CASES: tuple[tuple[str | None, str, int, int, dict[str, Any]], ...] = (
    ("digits", "conv", 8, 256, {}),
    (None, "conv", 32, 64, {}),
    (None, "resnet18", 32, 32, {}),
    (None, "resnet18", 96, 16, {"stem": "large"}),
    (None, "resnet50", 96, 8, {"stem": "large"}),
)


def measure(case: tuple[str | None, str, int, int, dict[str, Any]], steps: int, rounds: int) -> dict[str, Any]:
    data, encoder, size, batch, keys = case
    options = argparse.Namespace(data=data, encoder=encoder, size=size, batch=batch, images=512, device="cpu")
    trainers = {}
    for name, layout in LAYOUTS.items():
        with patch.object(training, "choose_memory_format", lambda *_, layout=layout, **__: layout):
            trainers[name] = build("frossl", options, **keys)
        trainers[name].method.train()
    turns = {name: product_step(trainer) for name, trainer in trainers.items()}
    for step in turns.values():
        step()
    times = seconds_per_step(turns, steps, rounds)
    views = trainers["channels-last"].config.views * trainers["channels-last"].config.batch_size
    ratios = [before / after for before, after in zip(times["contiguous"], times["channels-last"], strict=True)]
    count = min(FEATURE_BATCH, FEATURE_PIXELS // size**2)
    features = seconds_per_step(feature_passes(trainers["contiguous"], count), 1, rounds)
    of_features = [
        before / after for before, after in zip(features["contiguous"], features["channels-last"], strict=True)
    ]
    return {
        "encoder": encoder,
        "pixels": size,
        "batch": trainers["channels-last"].config.batch_size,
        "contiguous, views/s": views / median(times["contiguous"]),
        "channels-last, views/s": views / median(times["channels-last"]),
        "ratio": median(ratios),
        "ratio, quartiles of the rounds": quantiles(ratios, n=4),
        "features, batch": count,
        "features outermost, images/s": count / median(features["contiguous"]),
        "features innermost, images/s": count / median(features["channels-last"]),
        "features, ratio": median(of_features),
        "features, ratio, quartiles of the rounds": quantiles(of_features, n=4),
    }


def feature_passes(trainer: Trainer, count: int) -> dict[str, Callable[[], Any]]:
    encoder, config = trainer.method.encoder.eval(), trainer.config
    images = torch.rand(count, config.channels, config.image_size, config.image_size)

    def forward(layout: torch.memory_format) -> Tensor:
        with torch.inference_mode():
            return encoder(images.contiguous(memory_format=layout))

    return {name: partial(forward, layout) for name, layout in LAYOUTS.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2, help="steps in a round")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--commit", default="", help="the commit to record, if git is not available")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    speeds = ("contiguous, views/s", "channels-last, views/s", "ratio")
    table = Table("encoder", "pixels", "batch", *speeds, "features, ratio")
    for case in CASES:
        table.add(measure(case, options.steps, options.rounds))
    settings = {"threads": options.threads, "steps": options.steps, "rounds": options.rounds}
    keep(f"layout-cpu-{options.threads}-threads", table, settings, "cpu", options.commit, options.out)


if __name__ == "__main__":
    main()
