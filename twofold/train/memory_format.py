"""The memory format of the networks and their images: channels-last, which is faster, if the encoder supports it."""

import copy

import torch
from torch import Tensor, nn


def choose_memory_format(
    encoder: nn.Module, channels: int, image_size: int, device: torch.device, *, ours: bool
) -> torch.memory_format:
    """The memory format for a run's networks and views. `ours`: one of Twofold's encoders, which all support it."""
    if device.type == "mps" or not (ours or supports_channels_last(encoder, channels, image_size)):
        return torch.contiguous_format
    return torch.channels_last


def supports_channels_last(encoder: nn.Module, channels: int, image_size: int) -> bool:
    """Whether a user's module computes the same with channels-last tensors, forwards and backwards.

    Many modules do not: for instance, `x.view(len(x), -1)` after a convolution is then an error.
    """
    parameter = next(encoder.parameters(), torch.zeros(()))
    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        images = torch.rand(2, channels, image_size, image_size).to(parameter)
        usual, other = copy.deepcopy(encoder).eval(), copy.deepcopy(encoder).eval()
        try:
            before = usual(images)
            other.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            after = other(to_memory_format(images, torch.channels_last))
            if after.requires_grad:
                after.sum().backward()
        except (RuntimeError, ValueError):
            return False
    return torch.allclose(before, after, rtol=1e-3, atol=1e-5)


def to_memory_format(images: Tensor, memory_format: torch.memory_format) -> Tensor:
    """The same images [..., C, H, W] in this memory format."""
    return images.flatten(end_dim=-4).contiguous(memory_format=memory_format).view_as(images)
