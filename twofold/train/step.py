"""One training step, from views to updated weights. `TrainingStep.__call__` reads from top to bottom.

Parts that a run does not use (several processes, CUDA streams, bf16 weight copies) are objects that do nothing. None of
these objects refers to the trainer, so that Python frees a trainer when nobody uses it any more.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from twofold.config import Config
from twofold.cuda.bf16_weights import Bf16Weights, NoCopies
from twofold.cuda.streams import NoStreams, Streams
from twofold.data.augment import Augmenter
from twofold.data.loader import Loader
from twofold.device import autocast_of, tf32_products, uses_bf16
from twofold.methods import Method
from twofold.models import fast_linear_layers, fuse
from twofold.models.encoders import to_memory_format
from twofold.train.exchange import Exchange, NoExchange
from twofold.train.observers import Observers
from twofold.train.optim import set_learning_rate
from twofold.train.setup import build_flow
from twofold.types import Batch, Embeddings

MakeViews = Callable[..., list[Tensor]]  # (images, positions, step, sizes of pictures) → views and small crops


class TrainingStep:
    """A step that runs entirely on the device: the host waits for no value."""

    def __init__(
        self,
        config: Config,
        method: Method,
        optimizer: Optimizer,
        rates: Tensor,
        encoder_rates: Tensor,
        observers: Observers,
        exchange: Exchange | NoExchange,
        clock: Tensor,
        total_steps: int,
        memory_format: torch.memory_format,
        *,
        compiled: bool,
    ):
        self.config, self.method, self.optimizer = config, method, optimizer
        self.rates, self.encoder_rates = rates, encoder_rates
        self.observers, self.exchange, self.clock, self.total_steps = observers, exchange, clock, total_steps
        self.bf16 = uses_bf16(config.precision, clock.device)
        self.streams: Streams | NoStreams = NoStreams()
        self.weight_copies: Bf16Weights | NoCopies = NoCopies(method)
        self.optimizer_step: Callable[[], None] = optimizer.step
        if compiled:
            self._compile()
        self.forward = ForwardPass(self.weight_copies, autocast_of(config.precision, clock.device), clock.device)
        prepare = Preparation(method, self.streams, clock.device)
        self.flow = build_flow(config, method, self.forward, prepare, self.weight_copies, self.streams, memory_format)

    def _compile(self) -> None:
        """Use fused kernels, and side streams for work that can run at the same time."""
        from twofold.cuda.fused_optimizer import FusedStep  # Triton is installed only with CUDA

        torch.backends.cudnn.benchmark = True
        fuse(self.method)
        copies = None
        if self.bf16:
            self.weight_copies = copies = Bf16Weights(self.method, self.method.networks(), torch.bfloat16)
        self.optimizer_step = FusedStep(self.optimizer, copies)
        self.streams = Streams(self.clock.device)

    def __call__(self, batch: Batch, views: list[Tensor]) -> None:
        self.optimizer.zero_grad()  # here, to free the last gradients before the forward pass
        self.weight_copies.zero_grad()
        with tf32_products(self.bf16):
            embeddings = self.flow.embed(views, batch)
            embeddings, batch = self.exchange.gather_batch(embeddings, batch)
            loss = self.exchange.loss(embeddings)
            rate = self.rates.take(self.clock)  # indexing with [] would wait for the device
            with self.streams.side_stream():
                self.observers.observe(embeddings, loss, batch, rate / self.config.scaled_lr, self.exchange.samples)
            self.flow.backward(loss.total)
            self.exchange.sum_gradients()
            self.clip_gradients()
            is_same = self.encoder_rates is self.rates
            set_learning_rate(self.optimizer, rate, rate if is_same else self.encoder_rates.take(self.clock))
            self.optimizer_step()
            self.clock += 1
            self.method.update(embeddings, self.clock / self.total_steps)
            self.streams.join()

    def clip_gradients(self) -> None:
        if self.config.clip > 0:
            nn.utils.clip_grad_norm_((parameter for _, parameter in self.method.trained_parameters()), self.config.clip)


class ForwardPass:
    """The forward pass of the method's networks in the precision of the run."""

    def __init__(
        self,
        weight_copies: Bf16Weights | NoCopies,
        autocast: Callable[[], AbstractContextManager[Any]],
        device: torch.device,
    ):
        self.weight_copies, self.autocast, self.device = weight_copies, autocast, device

    def __call__(self, *inputs: Any, **options: Any) -> Embeddings:
        with self.autocast(), fast_linear_layers(self.device):
            return self.weight_copies(*inputs, **options)


class Preparation:
    """Updates the state that the loss needs; on CUDA, at the same time as the teacher's forward pass."""

    def __init__(self, method: Method, streams: Streams | NoStreams, device: torch.device):
        self.method, self.streams, self.device = method, streams, device

    def __call__(self, z: Tensor) -> None:
        with self.streams.side_stream(), torch.autocast(self.device.type, enabled=False):
            self.method.prepare(z)


class EagerSteps:
    """Runs the step of a number: loads the batch, makes views, trains. On CUDA, `StepGraph` does the same."""

    def __init__(
        self,
        loader: Loader,
        make_views: MakeViews,
        train_step: Callable[[Batch, list[Tensor]], None],
        clock: Tensor,
        exchange: Exchange | NoExchange,
    ):
        self.loader, self.make_views, self.train_step = loader, make_views, train_step
        self.clock, self.exchange = clock, exchange

    def __call__(self, step: int) -> None:
        batch = self.loader.batch(step)
        self.exchange.begin(self.loader.order.batch_size_of(step))
        self.train_step(batch, self.make_views(batch.images, batch.position, self.clock, batch.sizes))


class ViewMaker:
    """Makes the augmented views of a batch, in the memory format of the networks."""

    def __init__(self, augment: Augmenter, small_crops: Augmenter | None, memory_format: torch.memory_format):
        self.augmenters = [augmenter for augmenter in (augment, small_crops) if augmenter is not None]
        self.memory_format = memory_format

    def make(self, images: Tensor, position: Tensor, step: Tensor, sizes: Tensor | None = None) -> list[Tensor]:
        """The views [V, N, C, S, S] and, with multi-crop, the small crops [L, N, C, s, s]."""
        return [
            to_memory_format(augmenter(images, position, step, sizes), self.memory_format)
            for augmenter in self.augmenters
        ]
