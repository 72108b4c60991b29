"""The timing run: measures the time and the memory of a few steps on a few images, and writes nothing.

`verbs/choose.py` uses it for `--minutes` and for batches that fit into memory, `verbs/explain.py` for dry runs.
"""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from twofold import dist
from twofold.config import Config, Head
from twofold.cuda.step_graph import LEAST_STEPS, WARM_UP
from twofold.data.load import load_sample
from twofold.data.source import Data, Source
from twofold.device import DEVICE_SHARE, choose_device, free_memory, host_memory, kept_memory, uses_bf16
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.randomness import own_randomness
from twofold.train.trainer import Trainer

SMALL_BATCH = 16  # images in a small batch: memory is measured with it and grows with the batch
SMALL_PIXELS = SMALL_BATCH * 512**2  # fewer images if they are large, so that the measurement itself fits
TIMED_STEPS = 10
TRIAL_EPOCHS = 64  # of one step each, more than are run
LONG_STEP = 0.3  # seconds for a small batch
TIMED_SECONDS = 3.0  # fewer steps than TIMED_STEPS if these take longer
NARROW_SHARE = 0.6  # memory with bf16, relative to float32: most tensors have half the bytes
SPARE = 1.25  # factor for memory besides saved tensors: temporary gradients, workspaces, fragmentation


@dataclass(frozen=True)
class Memory:
    """The memory that training needs."""

    fixed: float  # bytes for weights, gradients and the optimizer's state
    per_image: float  # bytes that one image of the batch needs until the backward pass

    def bytes(self, batch_size: int) -> float:
        return SPARE * (self.fixed + self.per_image * batch_size)


def measure_memory(config: Config, source: Source, module: nn.Module | None = None) -> Memory:
    """Measure what autograd saves in one step of a small batch, on the CPU; it is the same on every device.

    `module` is the user's own encoder, which does not change.
    """
    trainer = _small_trainer(replace(config, device="cpu", pieces=1), source, module)
    batch_size = trainer.config.batch_size
    weights = {tensor.untyped_storage().data_ptr() for tensor in trainer.method.state_dict().values()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with own_randomness(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        trainer.take_step(0)
    trained = sum(parameter.nbytes for _, parameter in trainer.method.trained_parameters())
    state = sum(tensor.nbytes for tensor in trainer.method.state_dict().values())
    memory = sum(
        value.nbytes
        for values in trainer.optimizer.state.values()
        for value in values.values()
        if isinstance(value, Tensor)
    )
    share = NARROW_SHARE if uses_bf16(config.precision, choose_device(config.device)) else 1.0
    return Memory(fixed=state + trained + memory, per_image=share * sum(kept.values()) / batch_size)


def measure_step(config: Config, source: Source, budget: float | None = None, module: nn.Module | None = None) -> float:
    """Measure the seconds per step on this device, after a warm-up.

    A long step is measured with a small batch, because its time is proportional to the number of images. On CUDA, a
    step of the CUDA graph is measured if recording it pays off within `budget` seconds.
    """
    plain = replace(config, compile=False, pieces=1)
    small = _small_trainer(plain, source, module)
    seconds = _timed(small, warm_up=1)
    if seconds > LONG_STEP or small.config.batch_size == config.batch_size:
        return seconds * config.batch_size / small.config.batch_size
    seconds = _timed(_trainer(plain, source, module), warm_up=1)
    if budget is not None and choose_device(config.device).type == "cuda" and budget / seconds >= LEAST_STEPS:
        recorded = replace(config, compile=config.compile is not False)
        return _timed(_trainer(recorded, source, module), warm_up=WARM_UP + 1)
    return seconds


def _timed(trainer: Trainer, warm_up: int) -> float:
    wait: Callable[[], Any] = torch.cuda.synchronize if trainer.device.type == "cuda" else lambda: None
    with own_randomness(), kept_memory(when=trainer.device.type == "cpu"):
        trainer.method.train()
        for _ in range(warm_up):
            trainer.take_step(0)
        wait()
        pace = _pace(trainer, 2, wait)
        # All processes take the same number of steps, decided by the clock of the first.
        more = dist.from_first(lambda: min(TIMED_STEPS, int(TIMED_SECONDS / pace)))
        if more > 2:
            pace = _pace(trainer, more, wait)
    return dist.from_first(lambda: pace)


def _pace(trainer: Trainer, steps: int, wait: Callable[[], Any]) -> float:
    began = time.perf_counter()
    for _ in range(steps):
        trainer.take_step(0)
    wait()
    return (time.perf_counter() - began) / steps


def _small_trainer(config: Config, source: Source, module: nn.Module | None) -> Trainer:
    assert config.image_size is not None
    few = max(2, min(SMALL_BATCH, SMALL_PIXELS // config.image_size**2))
    try:
        return _trainer(replace(config, batch_size=min(few, config.batch_size)), source, module)
    except TwofoldError:  # some objectives need more images
        return _trainer(config, source, module)


def _trainer(config: Config, source: Source, module: nn.Module | None) -> Trainer:
    assert config.image_size is not None
    assert config.channels is not None
    assert config.picture_size != "auto"
    data: Data = load_sample(
        source,
        config.batch_size,
        image_size=config.image_size,
        channels=config.channels,
        picture_size=config.picture_size,
    )
    # The values of a teacher's features do not matter for the time of a step, and computing them would take longer.
    stand_in = data.train.images.flatten(1)[:, :512].float()
    data = replace(data, train=replace(data.train, features=stand_in))
    # Classifier rows stay in memory, because a timing run writes nothing and has few of them.
    parameters = {name: Head() if isinstance(value, Head) else value for name, value in config.parameters.items()}
    config = replace(
        config,
        epochs=TRIAL_EPOCHS,
        warmup_epochs=0.0,
        head_epochs=0.0,  # the steps in which the encoder is trained take longer
        batch_size=min(config.batch_size, len(data.train)),
        parameters=parameters,
    )
    return Trainer(config, data, Display(quiet=True), copy.deepcopy(module))


def available_memory(device: torch.device, images: float) -> float:
    """Bytes that a run may use on the device, in addition to images placed there; on a CPU, without swapping."""
    if device.type != "cpu":
        free = free_memory(device)
        return free - images if images <= DEVICE_SHARE * free else free
    return host_memory()
