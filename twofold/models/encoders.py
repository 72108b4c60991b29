"""Encoders: images [N, C, H, W] → features [N, K].

The ResNets use torchvision's parameter names, so torchvision's and timm's ResNets can load their weights with
`load_state_dict`. The stems are those of IsoLoss, Table 4: `small` for images of 32 pixels, `small-pool` for 64,
`large` from 96 on. `small-padded` is the stem of solo-learn for 32 pixels; its feature maps are 34, 17, 9 and 5 pixels
wide. `conv-patches` also has features that are made from the images. `timm:NAME` is the model NAME of timm, if timm is
installed.
"""

import copy
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn

from twofold.errors import TwofoldError, how_to_install, nearest
from twofold.models.efficientnet import EfficientNetLite
from twofold.models.norm import BatchNorm
from twofold.models.patches import PatchFeatures

# Kernel size, stride and padding of the first convolution, and whether a max-pool follows.
STEMS = {
    "small": (3, 1, 1, False),
    "small-padded": (3, 1, 2, False),
    "small-pool": (3, 1, 1, True),
    "large": (7, 2, 3, True),
}

Fork = tuple[Tensor, Tensor]  # the same tensor twice: for the convolutions of a block and for its shortcut


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut (ResNet-18 and ResNet-34)."""

    treats_samples_apart = True
    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.bn1 = BatchNorm(width, relu=True)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = BatchNorm(width, relu=True)
        self.downsample = shortcut(inputs, width, stride)

    def forward(self, forked: Fork) -> Fork:
        x, skip = forked
        y = self.bn1(self.conv1(x))
        return self.bn2.forked(self.conv2(y), skip if self.downsample is None else self.downsample(skip))


class Bottleneck(nn.Module):
    """Convolutions of 1×1, 3×3 (with the stride) and 1×1 to four times the width, and a shortcut (ResNet-50)."""

    treats_samples_apart = True
    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = BatchNorm(width, relu=True)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = BatchNorm(width, relu=True)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = BatchNorm(4 * width, relu=True)
        self.downsample = shortcut(inputs, 4 * width, stride)

    def forward(self, forked: Fork) -> Fork:
        x, skip = forked
        y = self.bn2(self.conv2(self.bn1(self.conv1(x))))
        return self.bn3.forked(self.conv3(y), skip if self.downsample is None else self.downsample(skip))


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    """A 1×1 convolution with BatchNorm if the block changes the shape, else None."""
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), BatchNorm(outputs))


class ResNet(nn.Module):
    """A ResNet without its classifier: images [N, C, H, W] → the mean of the last feature map, [N, K]."""

    treats_samples_apart = True
    fused = False  # set by `fuse`

    def __init__(self, block: type[BasicBlock] | type[Bottleneck], depths: tuple[int, ...], channels: int, stem: str):
        super().__init__()
        side, stride, padding, pooled = STEMS[stem]
        self.conv1 = nn.Conv2d(channels, 64, side, stride, padding, bias=False)
        self.bn1 = BatchNorm(64, relu=True)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1) if pooled else nn.Identity()
        inputs = 64
        for stage, depth in enumerate(depths):
            width = 64 * 2**stage
            blocks = []
            for number in range(depth):
                blocks.append(block(inputs, width, 2 if stage > 0 and number == 0 else 1))
                inputs = width * block.expansion
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.features = inputs
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x, skip = self.bn1.forked(self.first_convolution(x))
        if not isinstance(self.maxpool, nn.Identity):
            x = skip = self.maxpool(x)
        for stage in range(1, 5):
            x, skip = self.get_submodule(f"layer{stage}")((x, skip))
        return x.mean(dim=(2, 3))

    def first_convolution(self, x: Tensor) -> Tensor:
        if self.fused and self.training:
            from twofold.cuda import stem_kernels

            if stem_kernels.applies(self.conv1, x):
                return stem_kernels.stem(self.conv1, x)
        return self.conv1(x)


class TinyConv(nn.Module):
    """Four 3×3 convolutions, two of them with stride 2, for images of about 8 to 20 pixels on a CPU."""

    treats_samples_apart = True
    WIDTHS, STRIDES = (32, 64, 128, 256), (1, 2, 1, 2)

    def __init__(self, channels: int, strides: tuple[int, int, int, int] = STRIDES):
        super().__init__()
        layers: list[nn.Module] = []
        inputs = channels
        for width, stride in zip(self.WIDTHS, strides, strict=True):
            layers += [nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False), BatchNorm(width, relu=True)]
            inputs = width
        self.body = nn.Sequential(*layers)
        self.features = inputs

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x).mean(dim=(2, 3))


class PatchConv(nn.Module):
    """Features that are made from the images, and next to them those of a small convolutional network.

    Only the network is trained. In training mode, the features that are made from the images are 0: the objective must
    not be solved by them alone, and they cost no time.
    """

    treats_samples_apart = True
    LARGE = 40  # pixels; the first convolution has stride 2 for images of this size and above
    WEIGHT = 0.15  # of the network in a cosine similarity, relative to the features that are made from the images

    def __init__(self, channels: int, image_size: int):
        super().__init__()
        self.patches = PatchFeatures(channels, image_size)
        self.conv = TinyConv(channels, TinyConv.STRIDES if image_size < self.LARGE else (2, 2, 1, 2))
        self.norm = BatchNorm(self.conv.features, affine=False)
        self.features = self.patches.width + self.conv.features
        # The length of features with variance 1 is the square root of their number.
        self.scale = self.WEIGHT * (self.patches.width / self.conv.features) ** 0.5

    def forward(self, x: Tensor) -> Tensor:
        learnt = self.scale * self.norm(self.conv(x))
        made = learnt.new_zeros(len(x), self.patches.width) if self.training else self.patches(x)
        return torch.cat([made, learnt.to(made.dtype)], 1)  # the first are float32 under autocast, too


EFFICIENTNET = "efficientnet-lite0"
PATCH_CONV = "conv-patches"
MADE = "patches."  # the beginning of the names of the weights that are made from the images
Build = Callable[[int, str, int], nn.Module]  # (channels, stem, image_size)
ENCODERS: dict[str, Build] = {
    "resnet18": lambda channels, stem, _: ResNet(BasicBlock, (2, 2, 2, 2), channels, stem),
    "resnet34": lambda channels, stem, _: ResNet(BasicBlock, (3, 4, 6, 3), channels, stem),
    "resnet50": lambda channels, stem, _: ResNet(Bottleneck, (3, 4, 6, 3), channels, stem),
    "conv": lambda channels, _, __: TinyConv(channels),
    PATCH_CONV: lambda channels, _, image_size: PatchConv(channels, image_size),
    EFFICIENTNET: lambda channels, _, __: EfficientNetLite(channels),
}


TIMM = "timm:"


def has_name(encoder: str) -> bool:
    """Whether the encoder can be built from its name alone; the user's own modules cannot."""
    return encoder in ENCODERS or encoder.startswith(TIMM)


def name_of(encoder: str | nn.Module) -> str:
    """The name of an encoder; for the user's own module, the name of its class."""
    if isinstance(encoder, type):
        raise TwofoldError(f"the encoder is the class {encoder.__name__}: pass an instance, {encoder.__name__}(...)")
    if not isinstance(encoder, (str, nn.Module)):
        raise TwofoldError(f"the encoder is a {type(encoder).__name__}: pass a module or the name of an encoder")
    return encoder if isinstance(encoder, str) else type(encoder).__name__


def build_encoder(name: str, *, channels: int, stem: str, image_size: int) -> nn.Module:
    """Build an encoder with new weights.

    Parameters
    ----------
    name : str
        "resnet18", "resnet34", "resnet50", "conv", "conv-patches", "efficientnet-lite0", or "timm:NAME".
    channels : int
        The number of channels of the images.
    stem : str
        "small", "small-padded", "small-pool" or "large". Only Twofold's ResNets use it.
    image_size : int
        The side of the images in pixels. `conv-patches` and timm models with a fixed grid of patches use it.

    Returns
    -------
    nn.Module
        Maps images [N, C, H, W] to features [N, K].

    Examples
    --------
    >>> build_encoder("resnet18", channels=3, stem="small", image_size=32)
    """
    if name.startswith(TIMM):
        return from_timm(name.removeprefix(TIMM), channels, image_size)
    if name not in ENCODERS:
        raise TwofoldError(f"unknown encoder '{name}'{nearest(name, [*ENCODERS, f'{TIMM}NAME'])}")
    return ENCODERS[name](channels, stem, image_size)


def import_timm(name: str) -> Any:
    """Return the package timm, or raise an error that says what the model `name` needs."""
    try:
        import timm
    except ImportError as error:
        raise TwofoldError(
            f"{TIMM}{name} needs timm, which cannot be imported here ({error}): {how_to_install('timm')}"
        ) from None
    except RuntimeError as error:
        raise TwofoldError(
            f"{TIMM}{name} needs timm, and timm needs torchvision, which was built for another torch ({error}): "
            f"install both again from one index, such as "
            "pip install --force-reinstall torch torchvision --index-url https://download.pytorch.org/whl/cpu"
        ) from None
    return timm


def from_timm(name: str, channels: int, image_size: int, *, pretrained: bool = False) -> nn.Module:
    """Build a timm model with new weights, or with pretrained ones, which a tag in the name selects (NAME.TAG)."""
    timm = import_timm(name)
    models = timm.list_models()
    if (name.partition(".")[0] if pretrained else name) not in models:  # timm would silently ignore a tag
        close = ", ".join(TIMM + model for model in get_close_matches(name, models, n=3, cutoff=0))
        raise TwofoldError(f"timm {timm.__version__} has no model '{name}'; the nearest are {close}")
    asked = {"pretrained": pretrained, "num_classes": 0, "in_chans": channels}
    try:
        try:
            encoder = timm.create_model(name, img_size=image_size, **asked)
        except TypeError:  # the model takes images of any size and has no img_size
            encoder = timm.create_model(name, **asked)
    except (TypeError, ValueError, RuntimeError, AssertionError, ArithmeticError) as error:
        raise TwofoldError(
            f"encoder={TIMM}{name} cannot be built for {channels} channels and image_size={image_size}: {error}"
        ) from None
    except Exception as error:  # timm downloads with different libraries, each with errors of its own
        if not pretrained:
            raise
        raise TwofoldError(f"cannot download timm's weights {name}: {' '.join(str(error).split())}") from None
    side = patch_side(encoder)
    if image_size % side:  # timm would ignore the last rows and columns of pixels
        raise TwofoldError(
            f"encoder={TIMM}{name} divides images into patches of {side} pixels: "
            f"set image_size to a multiple of {side}, not {image_size}"
        )
    return encoder


def timm_settings(name: str) -> Any:
    """timm's configuration of pretrained weights, NAME or NAME.TAG; None without timm, or for an unknown name."""
    try:
        import timm

        return timm.get_pretrained_cfg(name)
    except (ImportError, RuntimeError, AttributeError):
        return None


def patch_side(encoder: nn.Module) -> int:
    """The side of the patches that the encoder divides images into; 1 if it does not, or if patches overlap."""
    cut = getattr(getattr(encoder, "patch_embed", None), "proj", None)
    return cut.stride[0] if isinstance(cut, nn.Conv2d) and cut.stride == cut.kernel_size else 1


@torch.no_grad()
def feature_dimension(encoder: nn.Module, channels: int, image_size: int) -> int:
    """Return the feature dimension K of a module that maps images to features [N, K].

    This takes one forward pass of two black images in evaluation mode.
    """
    training = encoder.training
    parameter = next(encoder.parameters(), torch.zeros(()))
    probe = torch.zeros(2, channels, image_size, image_size, device=parameter.device, dtype=parameter.dtype)
    try:
        features = encoder.eval()(probe)
    except (RuntimeError, ValueError, AssertionError) as error:  # timm's models raise AssertionError for a wrong size
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise TwofoldError(f"the encoder does not accept images {tuple(probe.shape[1:])}: {reason}") from None
    finally:
        encoder.train(training)
    if not isinstance(features, Tensor) or features.ndim != 2 or features.shape[0] != 2:
        shape = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise TwofoldError(f"the encoder returned {shape} for 2 images: it must return features [N, K]")
    return features.shape[1]


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
