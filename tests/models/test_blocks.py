"""The blocks of an encoder: freezing by number or name, and which modules stay in evaluation mode."""

from collections import OrderedDict

import pytest
import torch
from torch import Tensor, nn

from twofold.errors import TwofoldError
from twofold.models import build_encoder
from twofold.models.blocks import (
    block_numbers,
    blocks,
    constant_modules,
    freeze_parameters,
    has_new_batchnorm,
)


class Wrapped(nn.Module):
    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)


class Tokens(nn.Module):
    """Like a vision transformer: loose parameters, a first layer, a list of blocks and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.zeros(1, 4, 8))
        self.first = nn.Linear(8, 8)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(8, 2, 16) for _ in range(3))
        self.norm = nn.LayerNorm(8)


def resnet() -> nn.Module:
    return build_encoder("resnet18", channels=3, stem="large", image_size=32)


RESNET = [["conv1", "bn1"], *([f"layer{stage}.{row}"] for stage in range(1, 5) for row in range(2))]


def test_blocks_are_layers_with_their_norms_also_inside_a_wrapper() -> None:
    assert blocks(resnet()) == RESNET
    assert blocks(Wrapped(resnet())) == [[f"network.{name}" for name in block] for block in RESNET]
    assert blocks(Tokens()) == [["position", "first"], ["blocks.0"], ["blocks.1"], ["blocks.2", "norm"]]
    lite = blocks(build_encoder("efficientnet-lite0", channels=3, stem="small", image_size=32))
    assert len(lite) == 18
    assert lite[:2] == [["conv_stem", "bn1"], ["blocks.0.0"]]


def frozen(encoder: nn.Module) -> set[str]:
    return {name.rsplit(".", 1)[0] for name, weight in encoder.named_parameters() if not weight.requires_grad}


@pytest.mark.parametrize(
    "freeze, expected",
    [
        (1, {"0"}),
        (2.0, {"0", "1", "2"}),
        (-1, {"0", "1", "2"}),
        (0.5, {"0", "1", "2"}),
        (("2", "3"), {"2", "3"}),
        (("[01]",), {"0", "1"}),
        (0, set()),
        (None, set()),
    ],
)
def test_freeze_takes_a_share_a_number_or_names(freeze: float | tuple[str, ...] | None, expected: set[str]) -> None:
    layers = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1))
    freeze_parameters(layers, freeze, "none")
    assert frozen(layers) == expected  # there are three blocks, and half of them is rounded to 2


@pytest.mark.parametrize(
    "freeze, message",
    [
        (("layer9",), "no part 'layer9', did you mean 'layer"),
        (("*",), "leaves nothing of the encoder to train"),
        (9, "the encoder has 9 blocks, and one or more"),
        (1.5, "give a fraction below 1 or a whole number"),
    ],
)
def test_freeze_that_cannot_work_raises_an_error(freeze: float | tuple[str, ...], message: str) -> None:
    with pytest.raises(TwofoldError, match=message):
        freeze_parameters(resnet(), freeze, "none")


def test_batchnorm_is_frozen_with_or_without_scale_and_shift() -> None:
    for kind, expected in {"none": 0, "statistics": 20, "all": 20}.items():
        encoder = resnet()
        freeze_parameters(encoder, None, kind)
        assert len(constant_modules(encoder, None, kind)) == expected
        assert len(frozen(encoder)) == (20 if kind == "all" else 0)


def test_dropout_in_a_frozen_part_stays_in_evaluation_mode() -> None:
    layers = nn.Sequential(
        OrderedDict(first=nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5), last=nn.TransformerEncoderLayer(8, 2, 16))
    )
    constant = constant_modules(layers, 1, "none")
    assert layers.get_submodule("first.dropout1") in constant
    assert layers.get_submodule("last.dropout1") not in constant


def test_block_numbers_count_from_the_output() -> None:
    numbers = block_numbers(resnet())
    assert (numbers["layer4.1.conv1.weight"], numbers["layer4.0.bn2.bias"], numbers["bn1.weight"]) == (0, 1, 8)
    assert set(numbers) == {name for name, _ in resnet().named_parameters()}


def test_new_batchnorm_is_recognised() -> None:
    encoder = resnet()
    assert has_new_batchnorm(encoder)
    encoder(torch.randn(2, 3, 32, 32))
    assert not has_new_batchnorm(encoder)
    assert not has_new_batchnorm(nn.Linear(2, 2))
