"""`Encoder`: a network with its preprocessing, device and precision, and so all that it takes to compute features.

`open_run_encoder` opens that of a run, `open_encoder` any other one. The verbs, the report and the trainer compute all
features here.

n images, K feature dimension.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from twofold.config import Config
from twofold.data.source import Source
from twofold.device import choose_device
from twofold.errors import TwofoldError
from twofold.evaluate.features import BATCH_SIZE, ImageRows, batches, collect
from twofold.evaluate.foreign_encoders import (
    is_written_by_twofold,
    load_foreign_weights,
    load_timm,
    with_preprocess,
)
from twofold.models.encoders import TIMM, ResNet, TinyConv
from twofold.precision import autocast_of
from twofold.runs.preprocess import Preprocess, preprocess_of
from twofold.runs.run import Run
from twofold.runs.weights import load_encoder

Autocast = Callable[[], AbstractContextManager[Any]]
Progress = Callable[[int, int], None]  # called with the number of images that are done, and of all


@dataclass(frozen=True, eq=False)
class Encoder:
    """A network that is ready to compute features, float32 [n, K], of stored images, uint8 [n, C, H, W].

    While it does, the network is in eval mode and has no gradients, so that its BatchNorm buffers do not change.
    Afterwards every module has the mode that it had.
    """

    network: nn.Module  # on `device`
    preprocess: Callable[[Tensor], Tensor]  # uint8 images → what the network takes, on `device`
    device: torch.device
    autocast: Autocast = nullcontext  # makes the context of each forward pass

    @classmethod
    def on_device(
        cls, network: nn.Module, preprocess: Preprocess, device: torch.device, precision: str | None = None
    ) -> Self:
        """Moves both to the device. `precision` as in a configuration; None computes as the caller does."""
        autocast = nullcontext if precision is None else autocast_of(precision, device)
        return cls(network.to(device), preprocess.to(device), device, autocast)

    def features(self, images: ImageRows, *, batch_size: int = BATCH_SIZE, progress: Progress | None = None) -> Tensor:
        """Features [n, K] of all images, in order: on the device up to 1 GiB, else on the CPU."""
        return collect(len(images), self._batches(images, batch_size, progress))

    def blocks(self, images: ImageRows, progress: Progress | None = None) -> Iterator[np.ndarray]:
        """The same features block by block, as arrays: for files, into which not all have to fit at once."""
        return (batch.float().cpu().numpy() for batch in self._batches(images, BATCH_SIZE, progress))

    @torch.no_grad()
    def encode(self, images: Any) -> Tensor:
        """Features [N, K] on the CPU of what the preprocessing takes, such as a Pillow image, in the present mode."""
        with self.autocast():
            return self.network(self.preprocess(images)).float().cpu()

    @torch.no_grad()
    def _batches(self, images: ImageRows, batch_size: int, progress: Progress | None) -> Iterator[Tensor]:
        # Channels-last is a fifth to a third quicker on a CPU. A user's module may not support it, as `view` does not.
        is_ours = isinstance(self.network, ResNet | TinyConv) and self.device.type != "mps"
        memory_format = torch.channels_last if is_ours else torch.contiguous_format
        modes = [(module, module.training) for module in self.network.modules()]
        self.network.eval()

        def represent(pixels: Tensor) -> Tensor:
            with self.autocast():
                return self.network(self.preprocess(pixels.to(self.device)).contiguous(memory_format=memory_format))

        try:
            yield from batches(images, represent, batch_size, progress)
        finally:
            for module, mode in modes:
                module.training = mode


def open_run_encoder(run: Path, config: Config, module: nn.Module | None = None) -> Encoder:
    """The encoder of a finished run, in the run's precision. `module`: of a run that trained one of the user's own."""
    network = load_encoder(run, encoder=module)
    return Encoder.on_device(network, preprocess_of(network), choose_device("auto"), config.precision)


def is_encoder(what: str | Path | Run | nn.Module) -> bool:
    """Whether `open_encoder` takes it: anything else is a mistake, or a file that is no encoder."""
    if isinstance(what, nn.Module | Run) or str(what).startswith(TIMM):
        return True
    path = Path(what).expanduser()
    return path.is_dir() or (path.suffix == ".safetensors" and path.is_file())


def open_encoder(
    what: str | Path | Run | nn.Module,
    find_images: Callable[[], Source],
    *,
    module: str | nn.Module | None = None,
    image_size: int | None = None,
) -> Encoder:
    """Any encoder: of a run, a module, of a .safetensors file, or timm:NAME with timm's weights for it.

    `find_images` is called for an encoder that does not say how it is fed: it is built for the size of these images,
    unless an `image_size` is given, and normalises by their statistics. `module` is the architecture of a .safetensors
    file that Twofold did not write, by name or as a module, or the module of a run that trained one of the user's own.
    Runs compute in the precision of their configuration, others as the caller does.
    """
    if not is_encoder(what):
        raise TwofoldError(f"{what} is no encoder: give a run folder, a .safetensors file, or {TIMM}NAME")
    if isinstance(what, nn.Module):
        source = find_images()
        network, preprocess = with_preprocess(copy.deepcopy(what), image_size, source)  # the caller's keeps its mode
    elif str(what).startswith(TIMM):
        network, preprocess = load_timm(str(what).removeprefix(TIMM))
    elif (path := Path(what).expanduser()).is_dir():
        config = Run(path).config
        if isinstance(module, str):
            raise TwofoldError(f"{path} knows its encoder: leave out encoder={module}")
        return open_run_encoder(path, config, module)
    elif is_written_by_twofold(path):
        network = load_encoder(path, encoder=module if isinstance(module, nn.Module) else None)
        preprocess = preprocess_of(network)
    else:
        source = find_images()
        network, preprocess = with_preprocess(
            load_foreign_weights(path, module, image_size, source), image_size, source
        )
    return Encoder.on_device(network, preprocess, choose_device("auto"))
