"""The choice of a run's precision on a CPU: bfloat16 if the run is long and a measurement shows that it is faster."""

from dataclasses import replace
from typing import Any

from torch import nn

from twofold import dist
from twofold.config import Config
from twofold.data.source import Source
from twofold.device import choose_device, computes_bf16
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.train.timing_run import measure_step

LONG_RUN = 600.0  # seconds; shorter runs keep float32, because they would gain little
FASTER = 0.8  # bf16 is chosen if a step takes less than this share of the time with float32
# Pixels of all views of a run. With fewer, a ResNet-18 does not train for LONG_RUN even on one core, and nothing is
# timed. The demo on digits has 2.2e7.
FEWEST_PIXELS = 3e7


def faster_precision(
    config: Config,
    source: Source,
    steps: int,
    *,
    minutes: float | None,
    module: nn.Module | None,
    display: Display,
) -> dict[str, Any]:
    """Return `precision=bf16` if the run is long and a step with bf16 is clearly faster on this CPU, else nothing.

    The configuration has `precision=auto`. `steps` are those of the whole run. `minutes` is the training time that the
    user asked for, if any.
    """
    device = choose_device(config.device)
    assert config.image_size is not None
    pixels = steps * config.batch_size * config.views * config.image_size**2
    may_be_long = pixels >= FEWEST_PIXELS if minutes is None else 60 * minutes >= LONG_RUN
    if dist.count() > 1 or not may_be_long or not computes_bf16(device):
        return {}
    try:
        seconds = measure_step(replace(config, precision="float32"), source, None, module)
        if minutes is None and steps * seconds < LONG_RUN:
            return {}
        bf16_seconds = measure_step(replace(config, precision="bf16"), source, None, module)
    except TwofoldError:  # the run itself reports what is wrong
        return {}
    if bf16_seconds > FASTER * seconds:
        return {}
    display.say(
        f"precision=bf16, because a step is {seconds / bf16_seconds:.1f} times as fast as with float32 on this CPU; "
        "set precision=float32 to keep that"
    )
    return {"precision": "bf16"}
