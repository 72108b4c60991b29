"""Memory format: channels-last where an encoder supports it, otherwise contiguous."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import running
import twofold
from twofold.models.encoders import choose_memory_format, supports_channels_last, to_memory_format

CPU = torch.device("cpu")


class Viewing(nn.Module):
    """Common code that needs contiguous activations."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).view(len(x), -1)


class Flattening(Viewing):
    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).flatten(1)


class Gradient(torch.autograd.Function):
    """Its backward pass needs a contiguous gradient; its forward pass does not."""

    @staticmethod
    def forward(_: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(_: object, gradient: Tensor) -> Tensor:
        return gradient.view(-1).view_as(gradient)


class ViewingBackwards(Viewing):
    def forward(self, x: Tensor) -> Tensor:
        return self.conv(Gradient.apply(self.conv(x)).relu().mean(1, keepdim=True)).mean((2, 3))


class Striding(Viewing):
    """It ignores strides: channels-last activations give no error but wrong numbers."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return y.as_strided((len(y), y[0].numel()), (y[0].numel(), 1))


@pytest.mark.parametrize(
    "network, is_supported", [(Viewing, False), (Flattening, True), (ViewingBackwards, False), (Striding, False)]
)
def test_support_of_channels_last_is_tested_on_a_copy(network: type[nn.Module], is_supported: bool) -> None:
    network()(torch.rand(2, 1, 9, 9)).sum().backward()  # with contiguous images, all networks work
    encoder = network()
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    random = torch.get_rng_state()
    assert supports_channels_last(encoder, 1, 9) == is_supported
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
    assert all(value.grad is None and value.is_contiguous() for value in encoder.parameters())
    expected = torch.channels_last if is_supported else torch.contiguous_format
    assert choose_memory_format(encoder, 1, 9, CPU, ours=False) == expected
    assert choose_memory_format(encoder, 1, 9, CPU, ours=True) == torch.channels_last
    assert choose_memory_format(encoder, 1, 9, torch.device("mps"), ours=True) == torch.contiguous_format


@pytest.mark.parametrize("shape", [(5, 3, 4, 6), (2, 5, 3, 4, 6)])
def test_to_memory_format_changes_strides_and_not_values(shape: tuple[int, ...]) -> None:
    images = torch.randn(shape)
    moved = to_memory_format(images, torch.channels_last)
    assert torch.equal(moved, images)
    assert moved.flatten(end_dim=-4).is_contiguous(memory_format=torch.channels_last)
    assert to_memory_format(images, torch.contiguous_format).is_contiguous()


def test_encoders_of_twofold_are_trained_channels_last() -> None:
    trainer = running.trainer("simclr")
    weights = [weight for weight in trainer.method.encoder.parameters() if weight.ndim == 4 and weight.shape[1] > 1]
    assert weights
    assert all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)


def test_network_that_needs_contiguous_activations_is_trained(tmp_path: Path) -> None:
    keys = running.small("simclr", epochs=1)
    run = twofold.pretrain("digits", method="simclr", out=tmp_path / "run", encoder=Viewing(), **keys)
    assert run.results is not None
