"""Representations of a whole set of images: an encoder's features, and raw pixels as the baseline.

n images, C channels, H height, W width, K feature dimension.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from twofold.errors import TwofoldError
from twofold.models.encoders import ResNet, TinyConv

DEVICE_BYTES = 2**30  # features up to this size stay on their device, larger ones go to the CPU
PIXEL_SIDE = 32
MOMENT_NUMBERS = 2**22  # in a block of `moments`


class ImageStore(Protocol):
    def __len__(self) -> int: ...

    def take(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """uint8 images `[N, C, H, W]` of these rows, and their labels `[N]` where there are any."""


class Part:
    """Some rows of a store."""

    def __init__(self, store: ImageStore, rows: Tensor):
        self.store, self.rows = store, rows

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        return self.store.take(self.rows[rows])


def extract(
    encoder: nn.Module,
    store: ImageStore,
    preprocess: Callable[[Tensor], Tensor],
    *,
    batch_size: int = 512,
    device: torch.device | str,
    autocast: Callable[[], AbstractContextManager[object]] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """`encoder(preprocess(images))` of all images, in order: float32 `[n, K]`, on the device up to 1 GiB, else the CPU.

    The encoder runs in eval mode without gradients, so its BatchNorm buffers do not change; afterwards every module has
    the mode it had. `autocast` makes the context of the forward pass; `progress(done, n)` is called after every batch.
    """
    return _collect(
        len(store),
        stream(encoder, store, preprocess, batch_size=batch_size, device=device, autocast=autocast, progress=progress),
    )


@torch.no_grad()
def stream(
    encoder: nn.Module,
    store: ImageStore,
    preprocess: Callable[[Tensor], Tensor],
    *,
    batch_size: int = 512,
    device: torch.device | str,
    autocast: Callable[[], AbstractContextManager[object]] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Tensor]:
    """The same features batch by batch, for those who do not need them all at once."""
    context = autocast or nullcontext
    # A fifth to a third quicker on a CPU; a module of someone's own may not bear it, as `view` does not.
    ours = isinstance(encoder, ResNet | TinyConv) and torch.device(device).type != "mps"
    layout = torch.channels_last if ours else torch.contiguous_format
    modes = [(module, module.training) for module in encoder.modules()]
    encoder.eval()

    def encode(images: Tensor) -> Tensor:
        with context():
            return encoder(preprocess(images.to(device)).contiguous(memory_format=layout))

    try:
        yield from _batches(store, encode, batch_size, progress)
    finally:
        for module, mode in modes:
            module.training = mode


def pixels(store: ImageStore, *, batch_size: int = 256) -> Tensor:
    """Raw pixels from 0 to 1 as float32 `[n, C·H·W]`, placed like features.

    Height and width above 32 are first averaged down to 32, so that a probe on pixels stays affordable.
    """

    def flatten(images: Tensor) -> Tensor:
        values = images.float() / 255
        height, width = (min(side, PIXEL_SIDE) for side in values.shape[2:])
        return functional.adaptive_avg_pool2d(values, (height, width)).flatten(1)

    return _collect(len(store), _batches(store, flatten, batch_size, None))


@torch.no_grad()
def moments(features: Tensor, progress: Callable[[int, int], None] | None = None) -> tuple[Tensor, Tensor, int]:
    """Mean `[K]` and unbiased covariance `[K, K]` of rows, in float64 on the CPU, and how many rows are not finite.

    In blocks: the features may lie in a mapped file. Two passes, so that a large mean costs no digits.
    """
    size = max(1, MOMENT_NUMBERS // features.shape[1])
    total = torch.zeros(features.shape[1], dtype=torch.float64)
    broken = 0
    for block in features.split(size):
        total += block.cpu().double().sum(0)
        broken += int((~block.isfinite()).any(1).sum())
    mean = total / len(features)
    products = torch.zeros(len(mean), len(mean), dtype=torch.float64)
    for number, block in enumerate(features.split(size)):
        x = block.cpu().double() - mean
        products.addmm_(x.T, x)
        if progress is not None:
            progress(min((number + 1) * size, len(features)), len(features))
    return mean, products / max(len(features) - 1, 1), broken


@torch.no_grad()
def _batches(
    store: ImageStore,
    represent: Callable[[Tensor], Tensor],
    batch_size: int,
    progress: Callable[[int, int], None] | None,
) -> Iterator[Tensor]:
    total = len(store)
    if total == 0:
        raise TwofoldError("there are no images to represent: the data set is empty; give one with images")
    for start in range(0, total, batch_size):
        rows = torch.arange(start, min(start + batch_size, total))
        yield represent(store.take(rows)[0])
        if progress is not None:
            progress(start + len(rows), total)


def _collect(total: int, batches: Iterator[Tensor]) -> Tensor:
    collected: Tensor | None = None
    done = 0
    for batch in batches:
        if collected is None:
            place = batch.device if 4 * total * batch.shape[1] <= DEVICE_BYTES else torch.device("cpu")
            collected = torch.empty(total, batch.shape[1], dtype=torch.float32, device=place)
        collected[done : done + len(batch)] = batch
        done += len(batch)
    assert collected is not None
    return collected
