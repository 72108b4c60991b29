"""EfficientNet-Lite0: a small network for mobile devices, whose ImageNet weights are on the package index.

Its weights have timm's names (`tf_efficientnet_lite0`), so timm can load them. The convolutions pad as TensorFlow
does, because the weights were trained there.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from twofold.models.norm import BatchNorm

# Kernel size, stride, expansion, width and number of blocks of each stage.
STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
STEM, HEAD = 32, 1280
EPSILON, MOMENTUM = 1e-3, 0.01


def norm(channels: int) -> BatchNorm:
    made = BatchNorm(channels)
    made.eps, made.momentum = EPSILON, MOMENTUM
    return made


class SameConv2d(nn.Conv2d):
    """A convolution whose output has ⌈side / stride⌉ pixels. Of odd padding, the larger half follows the image."""

    treats_samples_apart = True

    def __init__(self, inputs: int, outputs: int, side: int, stride: int = 1, groups: int = 1):
        super().__init__(inputs, outputs, side, stride, bias=False, groups=groups)

    def forward(self, x: Tensor) -> Tensor:
        pads: list[int] = []
        for size in (x.shape[-1], x.shape[-2]):
            step, side = self.stride[0], self.kernel_size[0]
            total = max((-(-size // step) - 1) * step + side - size, 0)
            pads += [total // 2, total - total // 2]
        return super().forward(F.pad(x, pads) if any(pads) else x)


class DepthwiseBlock(nn.Module):
    """A depthwise and a 1×1 convolution: the first block, which does not expand its input."""

    treats_samples_apart = True

    def __init__(self, inputs: int, width: int, side: int, stride: int):
        super().__init__()
        self.conv_dw = SameConv2d(inputs, inputs, side, stride, groups=inputs)
        self.bn1 = norm(inputs)
        self.conv_pw = SameConv2d(inputs, width, 1)
        self.bn2 = norm(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn2(self.conv_pw(F.relu6(self.bn1(self.conv_dw(x)))))


class InvertedBlock(nn.Module):
    """A 1×1 convolution that expands, a depthwise one, and a 1×1 that narrows; a shortcut if the shape stays."""

    treats_samples_apart = True

    def __init__(self, inputs: int, width: int, side: int, stride: int, expansion: int):
        super().__init__()
        middle = inputs * expansion
        self.conv_pw = SameConv2d(inputs, middle, 1)
        self.bn1 = norm(middle)
        self.conv_dw = SameConv2d(middle, middle, side, stride, groups=middle)
        self.bn2 = norm(middle)
        self.conv_pwl = SameConv2d(middle, width, 1)
        self.bn3 = norm(width)
        self.has_shortcut = stride == 1 and inputs == width

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu6(self.bn1(self.conv_pw(x)))
        y = self.bn3(self.conv_pwl(F.relu6(self.bn2(self.conv_dw(y)))))
        return x + y if self.has_shortcut else y


class EfficientNetLite(nn.Module):
    """EfficientNet-Lite0 without its classifier: images [N, C, H, W] → the mean of the last feature map, [N, 1280]."""

    treats_samples_apart = True

    def __init__(self, channels: int):
        super().__init__()
        self.conv_stem = SameConv2d(channels, STEM, 3, stride=2)
        self.bn1 = norm(STEM)
        stages, inputs = [], STEM
        for side, stride, expansion, width, depth in STAGES:
            blocks: list[nn.Module] = []
            for number in range(depth):
                step = stride if number == 0 else 1
                blocks.append(
                    DepthwiseBlock(inputs, width, side, step)
                    if expansion == 1
                    else InvertedBlock(inputs, width, side, step, expansion)
                )
                inputs = width
            stages.append(nn.Sequential(*blocks))
        self.blocks = nn.Sequential(*stages)
        self.conv_head = SameConv2d(inputs, HEAD, 1)
        self.bn2 = norm(HEAD)
        self.features = HEAD
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(F.relu6(self.bn1(self.conv_stem(x))))
        return F.relu6(self.bn2(self.conv_head(x))).mean(dim=(2, 3))


def timm_name(name: str) -> str:
    """timm's name of a weight that TensorFlow's checkpoints and the packages made from them name otherwise."""
    parts = name.split(".")
    if parts[0] != "_blocks":
        top = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2", "_fc": "classifier"}
        return ".".join([top.get(parts[0], parts[0]), *parts[1:]])
    places = [(stage, row) for stage, (*_, depth) in enumerate(STAGES) for row in range(depth)]
    stage, row = places[int(parts[1])]
    inner = {"_depthwise_conv": "conv_dw", "_expand_conv": "conv_pw", "_project_conv": "conv_pwl"}
    inner |= {"_bn0": "bn1", "_bn1": "bn2", "_bn2": "bn3"}
    if STAGES[stage][2] == 1:
        inner |= {"_project_conv": "conv_pw", "_bn1": "bn1", "_bn2": "bn2"}
    return ".".join(["blocks", str(stage), str(row), inner[parts[2]], *parts[3:]])
