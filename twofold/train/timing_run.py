"""Times a few steps on a few images, to know what a run will cost. Writes nothing.

`verbs/choose.py` asks it for `--minutes` and for batches that fit the memory, `verbs/explain.py` for dry runs.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from twofold import dist
from twofold.config import Config, Head
from twofold.cuda.compilation import LEAST_STEPS
from twofold.cuda.step_graph import WARM_UP
from twofold.data.load import load_sample
from twofold.data.source import Data, Source
from twofold.device import DEVICE_SHARE, choose_device, free_memory, host_memory
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.precision import uses_bf16
from twofold.randomness import own_randomness
from twofold.train.trainer import Trainer

SMALL_BATCH = 16  # memory is measured on this many images, and grows with them
SMALL_PIXELS = SMALL_BATCH * 512**2  # fewer images where these are large: measuring must not take all memory
TIMED_STEPS = 10
TRIAL_EPOCHS = 64  # of one step each: more than are taken
LONG_STEP = 0.3  # seconds, of a small batch
TIMED_SECONDS = 3.0  # fewer steps where they are long
NARROW_SHARE = 0.6  # of float32's memory, with bf16: most of what is kept has half the bytes
SPARE = 1.25  # for what the saved tensors do not show: gradients on their way, workspaces, fragments


@dataclass(frozen=True)
class Memory:
    fixed: float  # bytes: weights, their gradients, the optimizer's state
    per_image: float  # bytes that one image of the batch keeps for the backward pass

    def bytes(self, batch_size: int) -> float:
        return SPARE * (self.fixed + self.per_image * batch_size)


def measure_memory(config: Config, source: Source) -> Memory:
    """From what autograd keeps in one step of a small batch: the same on every kind of device."""
    trainer = _small_trainer(replace(config, device="cpu", pieces=1), source)
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


def measure_step(config: Config, source: Source, budget: float | None = None) -> float:
    """Seconds of a step on this device, once it is warm.

    Where a step is long it is measured on a small batch, since its time then grows with the images. Where `budget`
    seconds are enough for a recorded step to pay, on CUDA, it is the recorded step that is measured.
    """
    plain = replace(config, compile=False, pieces=1)
    small = _small_trainer(plain, source)
    seconds = _timed(small, warm_up=1)
    if seconds > LONG_STEP or small.config.batch_size == config.batch_size:
        return seconds * config.batch_size / small.config.batch_size
    seconds = _timed(_trainer(plain, source), warm_up=1)
    if budget is not None and choose_device(config.device).type == "cuda" and budget / seconds >= LEAST_STEPS:
        recorded = replace(config, compile=config.compile is not False)
        return _timed(_trainer(recorded, source), warm_up=WARM_UP + 1)
    return seconds


def _timed(trainer: Trainer, warm_up: int) -> float:
    wait: Callable[[], Any] = torch.cuda.synchronize if trainer.device.type == "cuda" else lambda: None
    with own_randomness():
        trainer.method.train()
        for _ in range(warm_up):
            trainer.take_step(0)
        wait()
        pace = _pace(trainer, 2, wait)
        # All of several processes take the same steps: the first one's clock counts.
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


def _small_trainer(config: Config, source: Source) -> Trainer:
    assert config.image_size is not None
    few = max(2, min(SMALL_BATCH, SMALL_PIXELS // config.image_size**2))
    try:
        return _trainer(replace(config, batch_size=min(few, config.batch_size)), source)
    except TwofoldError:  # an objective may refuse so few images
        return _trainer(config, source)


def _trainer(config: Config, source: Source) -> Trainer:
    assert config.image_size is not None
    assert config.channels is not None
    data: Data = load_sample(source, config.batch_size, image_size=config.image_size, channels=config.channels)
    # Rows of a head stay in memory: a trial writes nothing, and has few of them.
    parameters = {name: Head() if isinstance(value, Head) else value for name, value in config.parameters.items()}
    config = replace(
        config,
        epochs=TRIAL_EPOCHS,
        warmup_epochs=0.0,
        batch_size=min(config.batch_size, len(data.train)),
        parameters=parameters,
    )
    return Trainer(config, data, Display(quiet=True))


def available_memory(device: torch.device, images: float) -> float:
    """Bytes that a run may use there, beside its images if they go there; on the host without swapping."""
    if device.type != "cpu":
        free = free_memory(device)
        return free - images if images <= DEVICE_SHARE * free else free
    return host_memory()
