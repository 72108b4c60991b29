"""Encoders that Twofold did not train: files of other programs, pretrained models, and PyTorch modules.

`encoder.open_encoder` uses this module.
"""

import copy
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from twofold.config.resolve import default_encoder_keys, default_image_size
from twofold.data.load import load_data
from twofold.data.source import Source
from twofold.errors import TwofoldError
from twofold.files import read_regular, refuse_special
from twofold.models import build_encoder
from twofold.models.encoders import EFFICIENTNET, ResNet, from_timm, import_timm
from twofold.models.onnx_encoder import OnnxEncoder
from twofold.runs.initial_weights import load_into, read_lite0
from twofold.runs.own_input import (
    EFFICIENTNET_LITE0,
    IMAGENET_MEAN,
    IMAGENET_STD,
    TORCHVISION,
    OwnInput,
    own_input,
)
from twofold.runs.preprocess import Preprocess, preprocess_of
from twofold.runs.tensor_files import load_tensors
from twofold.runs.weights import METADATA_KEY
from twofold.schema import MOST_BYTES

LARGEST = 4096  # pixels; the largest side of images, as for the key image_size


def is_written_by_twofold(path: Path) -> bool:
    """Return whether a .safetensors file describes its encoder and preprocessing, as those of Twofold do."""
    refuse_special([path])
    try:
        with safe_open(path, framework="pt") as file:
            return METADATA_KEY in (file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise TwofoldError(f"{path} cannot be read as a .safetensors file: {error}") from None


def with_preprocess(
    network: nn.Module, image_size: int | None, find_images: Callable[[], Source], own: OwnInput | None = None
) -> tuple[nn.Module, Preprocess]:
    """Return the network and its preprocessing.

    Without `own`, the network may state its input. If it does not, it gets images of a size that suits those that
    `find_images` returns, normalised by their mean and standard deviation.
    """
    if isinstance(getattr(network, "preprocess", None), Preprocess):
        return network, preprocess_of(network)
    own = own or own_input(network)
    if own is not None:
        return network.eval(), Preprocess(image_size or own.image_size, own.channels, own.mean, own.std)
    source = find_images()
    size, channels = image_size or default_image_size(source.train.side), source.train.channels
    first = getattr(network, "conv1", None)
    if isinstance(first, nn.Conv2d):
        channels = first.in_channels
    mean, std = load_data(source, image_size=size, channels=channels, test_fraction=0.0).train.statistics()
    return network.eval(), Preprocess(size, channels, mean.tolist(), std.tolist())


def input_of_resnet(network: nn.Module) -> OwnInput | None:
    """The input of a ResNet with torchvision's first layer, whose weights come from a file of another library."""
    is_torchvision = isinstance(network, ResNet) and network.conv1.weight.shape[1:] == (3, 7, 7)
    return TORCHVISION if is_torchvision else None


def load_foreign_weights(
    path: Path, name: str | nn.Module | None, image_size: int | None, find_images: Callable[[], Source]
) -> nn.Module:
    """Build an encoder by its name, or copy the given module, and load the weights of the file."""
    if name is None:
        raise TwofoldError(f"{path} does not name its network; add --encoder resnet50, --encoder timm:NAME or similar")
    tensors = load_tensors(path)
    if isinstance(name, nn.Module):
        network = copy.deepcopy(name)
    else:
        first = tensors.get("conv1.weight")
        # The first weights show the stem of a ResNet, except for the pooling after a small stem.
        is_large = first is not None and first.shape[-1] == 7
        size = image_size or (TORCHVISION.image_size if is_large else default_image_size(find_images().train.side))
        stem = "large" if is_large else default_encoder_keys(size)["stem"]
        channels = find_images().train.channels if first is None else first.shape[1]
        network = build_encoder(name, channels=channels, stem=stem, image_size=size)
    load_matching(path, network, tensors)
    return network


def load_matching(path: Path, network: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load all weights that the encoder needs. Other weights of the file, such as a classifier, are ignored."""
    wanted = network.state_dict()
    missing = [key for key in wanted if key not in tensors and not key.endswith("num_batches_tracked")]
    wrong = [key for key, value in wanted.items() if key in tensors and tensors[key].shape != value.shape]
    if missing or wrong:
        named = f"lacks {missing[0]}" if missing else f"has {wrong[0]} of shape {tuple(tensors[wrong[0]].shape)}"
        raise TwofoldError(
            f"{path} does not fit this encoder: it {named} ({len(missing)} missing, {len(wrong)} of another shape); "
            "check the name of the encoder"
        )
    network.load_state_dict({key: tensors.get(key, value) for key, value in wanted.items()})


def load_timm(name: str, image_size: int | None = None) -> tuple[nn.Module, Preprocess]:
    """Return a timm model with its pretrained weights, which timm may download, and its preprocessing."""
    timm = import_timm(name)
    try:
        network = timm.create_model(name, pretrained=True, num_classes=0)
    except Exception as error:  # of many types: unknown name, no network connection, damaged file
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise TwofoldError(
            f"timm could not load weights for {name} ({reason}); check the name and the network connection"
        ) from None
    settings = timm.data.resolve_model_data_config(network)
    channels, size, _ = settings["input_size"]
    if image_size not in (None, size):  # only some models need to be built for their size
        size = image_size
        network = from_timm(name, channels, size, pretrained=True)
    return network.eval(), Preprocess(size, channels, settings["mean"], settings["std"])


def load_onnx(path: Path, image_size: int | None) -> tuple[nn.Module, Preprocess]:
    """Return the network in an .onnx file, and the preprocessing that the JSON file next to it states."""
    try:
        content = torch.frombuffer(bytearray(read_regular(path)), dtype=torch.uint8)
    except (OSError, ValueError) as error:
        raise TwofoldError(f"{path} cannot be read: {error}; check that the file is complete") from None
    network = OnnxEncoder(content, str(path))
    described = path.with_name(f"{path.name}.json")
    example = {"preprocessing": {"resize": [network.image_size or 224] * 2, "mean": IMAGENET_MEAN, "std": IMAGENET_STD}}
    try:
        stated = json.loads(read_regular(described, MOST_BYTES))["preprocessing"]
        (size, _), mean, std = stated["resize"], tuple(map(float, stated["mean"])), tuple(map(float, stated["std"]))
        if not 1 <= int(size) <= LARGEST or not all(map(math.isfinite, mean + std)) or min(std) <= 0:
            raise ValueError(f"resize is {size}, mean is {mean} and std is {std}")
    except FileNotFoundError:
        raise TwofoldError(
            f"{path} does not state its preprocessing: write {described.name} next to it, for example with "
            f"{json.dumps(example)}; mean and std are for pixels from 0 to 1"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise TwofoldError(
            f"{described} does not state the preprocessing of {path.name} ({error!r}): write, for example, "
            f"{json.dumps(example)}"
        ) from None
    size = image_size or int(size)
    if network.image_size not in (None, size) or network.channels not in (None, len(mean)) or len(mean) != len(std):
        raise TwofoldError(
            f"{path} needs images of {network.image_size or 'any number of'} pixels with {network.channels} channels, "
            f"but {described.name} or the image size asks for {size} pixels and {len(mean)} channels: change them"
        )
    return network.eval(), Preprocess(size, len(mean), mean, std)


def load_lite0(image_size: int | None) -> tuple[nn.Module, Preprocess]:
    """Return EfficientNet-Lite0 with the ImageNet weights of a package of the index, and its preprocessing."""
    own = EFFICIENTNET_LITE0
    size = image_size or own.image_size
    network = build_encoder(EFFICIENTNET, channels=len(own.mean), stem="large", image_size=size)
    load_into(network, read_lite0(), EFFICIENTNET)
    return network.eval(), Preprocess(size, len(own.mean), own.mean, own.std)
