"""Continued pretraining: what a run takes over from the weights that it starts from."""

from typing import Any

from torch import nn

from twofold.runs.initial_weights import encoder_settings
from twofold.runs.own_input import OwnInput, own_input

SIZES = (64, 80, 96, 112, 128, 144, 160, 192, 224)  # of images that are smaller than a pretrained encoder was made for
ENLARGED = 4  # images are enlarged at most this much for a pretrained encoder


def initial_input(init: str | None, module: nn.Module | None) -> tuple[dict[str, Any], OwnInput | None]:
    """The settings that fit the weights from `init`, and the input that these weights, or a module, were made for."""
    settings, own = ({}, None) if init is None else encoder_settings(init)
    return settings, own or (None if module is None else own_input(module))


def own_normalisation(own: OwnInput, channels: Any) -> dict[str, Any]:
    """The settings for the encoder's own normalisation.

    If the user asks for grey images, all their values get the mean of the colours. With other numbers of channels, the
    normalisation does not apply.
    """
    if channels is None or str(channels) == str(own.channels):
        return own.normalisation()
    if str(channels) != "1":
        return {}
    return {"mean": (sum(own.mean) / own.channels,), "std": (sum(own.std) / own.channels,)}


def nearest_size(own: int, side: int, enlarged: int = ENLARGED) -> int:
    """The largest size up to `own` that enlarges images of this side at most `enlarged` times."""
    return max((size for size in (*SIZES, own) if size <= min(own, enlarged * side)), default=min(own, SIZES[0]))
