"""`Encoder`: a network with its preprocessing, device and precision, ready to compute features.

`open_run_encoder` opens the encoder of a run, and `open_encoder` opens any encoder. The verbs, the report and the
trainer compute all features with this class.

Shapes: n images, K feature dimension.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from twofold.config import Config
from twofold.data.augment import Augmenter
from twofold.data.source import Source
from twofold.device import autocast_of, choose_device, evaluation_precision
from twofold.errors import TwofoldError, close_to
from twofold.evaluate.features import BATCH_SIZE, ImageRows, batches, check_views, collect, fixed_views
from twofold.evaluate.foreign_encoders import (
    input_of_resnet,
    is_written_by_twofold,
    load_foreign_weights,
    load_lite0,
    load_onnx,
    load_timm,
    with_preprocess,
)
from twofold.evaluate.view_retrieval import FIRST_STEP
from twofold.models import fast_linear_layers
from twofold.models.adapter import AdaptedEncoder
from twofold.models.encoders import EFFICIENTNET, TIMM, PatchConv, ResNet, TinyConv
from twofold.runs.preprocess import Preprocess, preprocess_of
from twofold.runs.run import Run, config_of
from twofold.runs.weights import load_encoder

VIEWED_AT_ONCE = 128  # images of which views are made at a time
FILES = (".safetensors", ".onnx")  # files that hold an encoder

Autocast = Callable[[], AbstractContextManager[Any]]
Progress = Callable[[int, int], None]  # called with the number of images done and of all images


@dataclass(frozen=True, eq=False)
class Encoder:
    """A network that computes features, float32 `[n, K]`, of stored images, uint8 `[n, C, H, W]`.

    Features are computed in eval mode and without gradients, so BatchNorm buffers do not change. Afterwards, each
    module returns to its previous mode.

    Parameters
    ----------
    network : nn.Module
        The encoder, on `device`.
    preprocess : callable
        Turns uint8 images into the input of the network, on `device`.
    device : torch.device
        Where features are computed.
    autocast : callable
        Returns the context manager of a forward pass, which sets the precision.
    views : int
        1, or 5 to return the mean of the features of the image and of four crops. This takes 5 forward passes.
    """

    network: nn.Module
    preprocess: Callable[[Tensor], Tensor]
    device: torch.device
    autocast: Autocast = nullcontext
    views: int = 1

    @classmethod
    def on_device(
        cls, network: nn.Module, preprocess: Preprocess, device: torch.device, precision: str | None = None
    ) -> Self:
        """Move network and preprocessing to the device.

        `precision` is a value of the key `precision`: bf16 becomes float32 on a CPU that computes bf16 more slowly.
        With None, the caller's autocast settings apply.
        """
        autocast = nullcontext if precision is None else autocast_of(evaluation_precision(precision, device), device)
        return cls(network.to(device), preprocess.to(device), device, autocast)

    def features(self, images: ImageRows, *, batch_size: int = BATCH_SIZE, progress: Progress | None = None) -> Tensor:
        """Return the features `[n, K]` of all images, in order.

        Features of up to 1 GiB stay on the device; larger ones are moved to the CPU.
        """
        return collect(len(images), self._batches(images, batch_size, progress))

    def blocks(self, images: ImageRows, progress: Progress | None = None) -> Iterator[np.ndarray]:
        """Yield the same features block by block, as arrays. So a file can be larger than the memory."""
        return (batch.float().cpu().numpy() for batch in self._batches(images, BATCH_SIZE, progress))

    @torch.no_grad()
    def encode(self, images: Any) -> Tensor:
        """Return the features `[N, K]`, on the CPU, of images that the preprocessing accepts, such as a Pillow image.

        The mode of the network (train or eval) does not change. With several views, the images must be uint8 pixels
        `[N, C, H, W]` or `[C, H, W]`.
        """
        views = [images]
        if self.views > 1:
            pixels = torch.as_tensor(np.array(images))
            views = fixed_views(pixels if pixels.ndim == 4 else pixels[None], self.views)
        with self.autocast():
            return torch.stack([self.network(self.preprocess(view)).float() for view in views]).mean(0).cpu()

    @torch.no_grad()
    def view_blocks(
        self, images: ImageRows, augment: Augmenter, progress: Progress | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield row numbers `[N]` and the features `[1 + V, N, K]` of the images as they are and of V random views.

        A view depends only on the seed of the augmentation, the number of the row, and the number of the view.
        """
        augment, step = augment.to(self.device), torch.tensor(FIRST_STEP, device=self.device)
        with self._evaluating():
            for rows in torch.arange(len(images)).split(VIEWED_AT_ONCE):
                pixels = images.take(rows)[0].to(self.device)
                views = [self.preprocess(pixels), *augment(pixels, rows.to(self.device), step)]
                yield rows, torch.stack([self._forward(view).float() for view in views])
                if progress is not None:
                    progress(int(rows[-1]) + 1, len(images))

    @torch.no_grad()
    def represent(self, pixels: Tensor) -> Tensor:
        """Return the features `[n, K]` of pixels from 0 to 1, float32 `[n, C, S, S]`."""
        with self._evaluating():
            return self._forward(self.preprocess(255 * pixels.to(self.device))).float()

    @torch.no_grad()
    def _batches(self, images: ImageRows, batch_size: int, progress: Progress | None) -> Iterator[Tensor]:
        def represent(pixels: Tensor) -> Tensor:
            views = fixed_views(pixels.to(self.device), self.views)
            if len(views) == 1:
                return self._forward(self.preprocess(views[0]))
            return torch.stack([self._forward(self.preprocess(view)).float() for view in views]).mean(0)

        with self._evaluating():
            yield from batches(images, represent, batch_size, progress)

    def _forward(self, inputs: Tensor) -> Tensor:
        # Channels-last is 20 to 33 % faster on a CPU. A module of the user may not support it, as `view` does not.
        network = self.network.encoder if isinstance(self.network, AdaptedEncoder) else self.network
        is_ours = isinstance(network, ResNet | TinyConv | PatchConv) and self.device.type != "mps"
        with self.autocast(), fast_linear_layers(self.device):
            return self.network(
                inputs.contiguous(memory_format=torch.channels_last if is_ours else torch.contiguous_format)
            )

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        modes = [(module, module.training) for module in self.network.modules()]
        self.network.eval()
        try:
            yield
        finally:
            for module, mode in modes:
                module.training = mode


def open_run_encoder(
    run: Path,
    config: Config,
    module: nn.Module | None = None,
    *,
    adapter: bool = True,
    views: int = 1,
    say: Callable[[str], None] = lambda _: None,
) -> Encoder:
    """Open the encoder of a finished run, in the precision of the run, with its adapter if it has one.

    If the run trained a module of the user, pass a module of the same architecture as `module`. `say` is called with a
    text if an adapter is applied or several views are averaged.
    """
    check_views(views)
    network = load_encoder(run, encoder=module, adapter=adapter)
    say_adapter(network, say)
    if views > 1:
        say(views_in_words(views))
    opened = Encoder.on_device(network, preprocess_of(network), choose_device("auto"), config.precision)
    return replace(opened, views=views)


def say_adapter(network: nn.Module, say: Callable[[str], None]) -> None:
    """Call `say` with a line about the adapter of the network, if it has one."""
    if isinstance(network, AdaptedEncoder):
        say(f"adapter  {network.name}, applied to the features; leave it out with --no-adapter (adapter=False)")


def views_in_words(views: int) -> str:
    """Return a line that states what is averaged, and its cost."""
    return f"views    {views}: mean features of each image and {views - 1} crops of it, at {views} times the cost"


def is_pretrained(what: str | Path | Run) -> bool:
    """Return whether this names a pretrained network: efficientnet-lite0 or `timm:NAME`."""
    return str(what) == EFFICIENTNET or str(what).startswith(TIMM)


def is_encoder(what: str | Path | Run | nn.Module) -> bool:
    """Return whether `open_encoder` can open this: a module, a run, a name, a folder or a file of one of `FILES`."""
    if isinstance(what, nn.Module | Run) or is_pretrained(what):
        return True
    path = Path(what).expanduser()
    return path.is_dir() or (path.suffix in FILES and path.is_file())


def open_encoder(
    what: str | Path | Run | nn.Module,
    find_images: Callable[[], Source],
    *,
    module: str | nn.Module | None = None,
    image_size: int | None = None,
    adapter: bool = True,
    views: int = 1,
    say: Callable[[str], None] = lambda _: None,
) -> Encoder:
    """Open an encoder.

    The encoder of a run computes in the precision of the run's configuration. Other encoders compute in the precision
    that the caller's autocast settings state.

    Parameters
    ----------
    what : str, Path, Run or nn.Module
        A run, a .safetensors or .onnx file, a module, `efficientnet-lite0` with ImageNet weights, or `timm:NAME` for a
        timm model with its pretrained weights.
    find_images : callable
        Returns the images. It is called only for a module or a .safetensors file that does not state its input. Such an
        encoder gets images of a size that suits these, normalised by their mean and standard deviation. Modules of timm
        and torchvision state their input, and files that Twofold wrote.
    module : str or nn.Module, optional
        For a .safetensors file that Twofold did not write: the architecture, by name or as a module. For a run that
        trained your own module: a module of the same class.
    image_size : int, optional
        The size of the input, for an encoder without preprocessing.
    adapter : bool
        Whether the adapter of a run or of a file that Twofold wrote is applied, if there is one.
    views : int
        1, or 5 to average the features of each image and of four crops of it.
    say : callable
        Called with a text if an adapter is applied or several views are averaged.

    Returns
    -------
    Encoder
        The encoder, on the best device available.
    """
    refuse_other(what)
    path = None if isinstance(what, nn.Module) or is_pretrained(what) else Path(what).expanduser()
    if path is not None and path.is_dir():
        config = config_of(path)
        if isinstance(module, str):
            raise TwofoldError(f"{path} is a run, which defines its encoder; leave out encoder={module}")
        if image_size is not None:
            raise TwofoldError(f"{path} is a run, which defines the size of its images; leave out the image size")
        return open_run_encoder(path, config, module, adapter=adapter, views=views, say=say)
    network, preprocess = _load(what, path, find_images, module, image_size, adapter)
    say_adapter(network, say)
    if check_views(views) > 1:
        say(views_in_words(views))
    return replace(Encoder.on_device(network, preprocess, choose_device("auto")), views=views)


def refuse_other(what: str | Path | Run | nn.Module) -> None:
    """Raise an error for what is no encoder."""
    if not is_encoder(what):
        raise TwofoldError(
            f"{what} is not an encoder: give a run folder, a {' or '.join(FILES)} file, {EFFICIENTNET} or {TIMM}NAME"
            + (f", did you mean '{EFFICIENTNET}'?" if close_to(str(what), [EFFICIENTNET]) else "")
        )


def _load(
    what: str | Path | Run | nn.Module,
    path: Path | None,
    find_images: Callable[[], Source],
    module: str | nn.Module | None,
    image_size: int | None,
    adapter: bool,
) -> tuple[nn.Module, Preprocess]:
    """Load an encoder that is not in a run folder, and its preprocessing. `path` is that of its file, if it has one."""
    if isinstance(what, nn.Module):
        own = copy.deepcopy(what)  # the module of the caller keeps its mode
        return with_preprocess(own, image_size, find_images)
    if path is None:
        name = str(what)
        return load_lite0(image_size) if name == EFFICIENTNET else load_timm(name.removeprefix(TIMM), image_size)
    if path.suffix == ".onnx":
        return load_onnx(path, image_size)
    if is_written_by_twofold(path):
        network = load_encoder(path, encoder=module if isinstance(module, nn.Module) else None, adapter=adapter)
        return network, preprocess_of(network)
    built = load_foreign_weights(path, module, image_size, find_images)
    return with_preprocess(built, image_size, find_images, input_of_resnet(built))
