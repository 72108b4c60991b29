"""EfficientNet-Lite0: the published number of weights, TensorFlow's padding, and the names of its weights."""

import torch
import torch.nn.functional as F
from torch import nn

from twofold.models.efficientnet import EfficientNetLite, SameConv2d, timm_name

WITHOUT_CLASSIFIER = 4_652_008 - 1000 * 1280 - 1000  # timm states 4.65 million weights for tf_efficientnet_lite0


def test_number_of_weights_is_that_of_the_published_network() -> None:
    assert sum(weight.numel() for weight in EfficientNetLite(3).parameters()) == WITHOUT_CLASSIFIER


def test_convolutions_pad_as_tensorflow_does() -> None:
    """With stride 2 and an even side, a 3×3 kernel has one pixel of padding, after the image."""
    for side, size, pads in ((3, 8, (0, 1)), (3, 9, (1, 1)), (5, 8, (1, 2)), (5, 9, (2, 2))):
        layer, x = SameConv2d(1, 1, side, stride=2), torch.randn(1, 1, size, size)
        expected = F.conv2d(F.pad(x, pads * 2), layer.weight, stride=2)
        torch.testing.assert_close(layer(x), expected)
        assert expected.shape[-1] == -(-size // 2)


def test_every_weight_has_a_name_of_the_original_checkpoint() -> None:
    """The names of the original checkpoint are built here from its layout: 16 numbered blocks of up to three layers."""
    inner = [("_expand_conv", "_bn0"), ("_depthwise_conv", "_bn1"), ("_project_conv", "_bn2")]
    parts = ["_conv_stem", "_bn0", "_conv_head", "_bn1"]
    for number in range(16):
        pairs = inner[1:] if number == 0 else inner
        parts += [f"_blocks.{number}.{name}" for pair in pairs for name in pair]
    network = EfficientNetLite(3)
    layers = {name for name, part in network.named_modules() if isinstance(part, nn.Conv2d | nn.BatchNorm2d)}
    layers |= {name.rsplit(".", 1)[0] for name, _ in network.named_parameters()}
    assert {timm_name(f"{part}.weight").removesuffix(".weight") for part in parts} == layers
    assert timm_name("_blocks.3._depthwise_conv.weight") == "blocks.2.0.conv_dw.weight"
    assert timm_name("_blocks.0._project_conv.weight") == "blocks.0.0.conv_pw.weight"
    assert timm_name("_fc.bias") == "classifier.bias"


def test_features_do_not_depend_on_the_rest_of_the_batch() -> None:
    network = EfficientNetLite(3).eval()
    x = torch.randn(3, 3, 40, 40)
    with torch.no_grad():
        assert network(x).shape == (3, 1280)
        torch.testing.assert_close(network(x)[1:2], network(x[1:2]), rtol=1e-4, atol=1e-5)
