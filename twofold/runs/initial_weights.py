"""Weights to start from (`init`): of a run, of a safetensors file, or timm's pretrained ones.

Weights only: optimizer, projector and step are new, which is what sets it apart from `resume`. A run keeps a copy, so
that it can be resumed without the file, and its configuration says `SOURCE@FINGERPRINT`, with 16 digits of the weights.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from twofold.config import Config
from twofold.errors import TwofoldError
from twofold.models import ENCODERS, build_encoder, has_name
from twofold.models.encoders import TIMM, from_timm
from twofold.runs.weights import HEADER, encoder_file, fingerprint, save_tensors

FILE = "initial.safetensors"  # in the run folder
OF_OWN = "untrained.safetensors"  # there too: what an encoder of the user's own began with
CLASSIFIERS = ("fc", "head", "classifier")  # what libraries call the layer after the features
PINNED = re.compile(r"(?P<source>.+)@(?P<print>[0-9a-f]{16})")
SHOWN = 3  # names in a message


def located(init: str) -> str:
    """The same weights, found from any folder."""
    source, pin = unpinned(init)
    return init if source.startswith(TIMM) else str(weights_file(source).resolve()) + (f"@{pin}" if pin else "")


def unpinned(init: str) -> tuple[str, str | None]:
    found = PINNED.fullmatch(init)
    return (init, None) if found is None else (found["source"], found["print"])


def weights_file(source: str) -> Path:
    path = Path(source).expanduser()
    if not path.exists():
        raise TwofoldError(f"init={source}: there is no such run or file; give one, or {TIMM}NAME")
    if path.is_file() and path.suffix != ".safetensors":
        raise TwofoldError(
            f"init={source}: weights are read from .safetensors alone, since other formats can run programs; "
            "write one with safetensors.torch.save_file(module.state_dict(), path)"
        )
    return encoder_file(path)


def keys_of(init: str) -> dict[str, Any]:
    """Configuration that suits the weights: what a run's encoder was built from, or what names and shapes show."""
    source, _ = unpinned(init)
    if source.startswith(TIMM):
        kind = source.removeprefix(TIMM).partition(".")[0]
        return {"encoder": kind, "stem": "large"} if kind in ENCODERS else {"encoder": TIMM + kind}
    path = weights_file(source)
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        described = json.loads(metadata[HEADER]) if HEADER in metadata else {}
    except (SafetensorError, OSError, ValueError) as error:
        raise TwofoldError(f"init={source} cannot be read: {error}") from None
    if not isinstance(described, dict) or not described:
        return resnet_of(shapes)
    known = ("encoder", "stem", "channels", "image_size") if has_name(str(described.get("encoder"))) else ()
    return {name: described[name] for name in known if name in described}


def resnet_of(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Which of our ResNets has these weights; nothing where none has."""
    first = shapes.get("conv1.weight", ())
    if len(first) != 4:
        return {}
    ours = {name: shape for name, shape in shapes.items() if not is_classifier(name)}
    stem = {"stem": "large"} if first[2] == 7 else {}
    for kind in (kind for kind in ENCODERS if kind.startswith("resnet")):
        with torch.device("meta"):
            network = build_encoder(kind, channels=first[1], stem="large" if stem else "small", image_size=224)
        if not mismatches(network, ours):
            return {"encoder": kind, "channels": first[1], **stem}
    return {}


def is_classifier(name: str) -> bool:
    return name.split(".")[0] in CLASSIFIERS


def read_initial(init: str, *, channels: int, image_size: int) -> tuple[str, dict[str, Tensor]]:
    """`init` with the fingerprint of its weights, and the weights. One that is given must be theirs."""
    source, pin = unpinned(init)
    if source.startswith(TIMM):
        tensors = from_timm(source.removeprefix(TIMM), channels, image_size, pretrained=True).state_dict()
    else:
        try:
            tensors = load_file(weights_file(source))
        except (SafetensorError, OSError) as error:
            raise TwofoldError(f"init={source} cannot be read: {error}") from None
    found = fingerprint(tensors)
    if pin is not None and pin != found:
        raise TwofoldError(f"init={init}: the weights there are others by now, with fingerprint {found}")
    return f"{source}@{found}", tensors


def keep(folder: Path, tensors: Mapping[str, Tensor] | None, own: nn.Module | None) -> None:
    """What a run begins with and cannot make again: weights of others, an encoder of the user's own."""
    if tensors is not None:
        save_tensors(folder / FILE, tensors, {})
    if own is not None:
        save_tensors(folder / OF_OWN, own.state_dict(), {})


def kept(folder: Path) -> dict[str, Tensor]:
    """What a run began with."""
    try:
        return load_file(folder / FILE)
    except (SafetensorError, OSError) as error:
        raise TwofoldError(f"the weights that {folder} began with cannot be read: {error}; start it anew") from None


def as_begun(folder: Path, own: nn.Module) -> nn.Module:
    """An encoder of the user's own with the weights that the run began with, whatever it has been trained to since."""
    if not (folder / OF_OWN).exists():  # of a run that did not keep them
        return own
    try:
        own.load_state_dict(load_file(folder / OF_OWN))
    except (SafetensorError, OSError) as error:
        raise TwofoldError(f"the weights that {folder} began with cannot be read: {error}; start it anew") from None
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise TwofoldError(f"{folder} trained another {type(own).__name__} than this: {reason}") from None
    return own


@torch.no_grad()
def put(encoder: nn.Module, tensors: Mapping[str, Tensor], init: str) -> None:
    """Give the encoder these weights, all of them or none. A classifier that it does not have is left out."""
    own = encoder.state_dict().keys()
    tensors = {name: value for name, value in tensors.items() if name in own or not is_classifier(name)}
    wrong = mismatches(encoder, {name: tuple(value.shape) for name, value in tensors.items()})
    if wrong:
        raise TwofoldError(f"init={init} does not fit the encoder: {'; '.join(wrong)}{remedy(encoder, tensors)}")
    broken = [name for name, value in tensors.items() if not torch.isfinite(value).all()]
    if broken:
        raise TwofoldError(f"init={init} has weights that are not finite: {some(broken)}")
    encoder.load_state_dict(tensors, strict=False)  # all but counters are there


def refuse_unfit(config: Config) -> None:
    """What a run would refuse of the weights that it is to begin with: a dry run must not promise it."""
    if config.init is None:
        return
    assert config.channels is not None
    assert config.image_size is not None
    init, tensors = read_initial(config.init, channels=config.channels, image_size=config.image_size)
    network = build_encoder(config.encoder, channels=config.channels, stem=config.stem, image_size=config.image_size)
    put(network, tensors, init)


def mismatches(encoder: nn.Module, shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """What keeps an encoder from taking weights of these names and shapes, in words."""
    wanted = {name: tuple(value.shape) for name, value in encoder.state_dict().items()}
    missing = [name for name in wanted if name not in shapes and not name.endswith("num_batches_tracked")]
    unknown = [name for name in shapes if name not in wanted]
    other = [
        f"{name} ({sized(shapes[name])} instead of {sized(shape)})"
        for name, shape in wanted.items()
        if shapes.get(name, shape) != shape
    ]
    kinds = {"of another shape": other, "missing": missing, "unknown": unknown}
    return [f"{len(names)} {kind}: {some(names)}" for kind, names in kinds.items() if names]


def remedy(encoder: nn.Module, tensors: Mapping[str, Tensor]) -> str:
    """For a first layer that differs, the keys that would make it the same."""
    mine, theirs = encoder.state_dict().get("conv1.weight"), tensors.get("conv1.weight")
    if mine is None or theirs is None or mine.ndim != 4 or theirs.ndim != 4:
        return ""
    keys = [] if mine.shape[1] == theirs.shape[1] else [f"channels={theirs.shape[1]}"]
    if mine.shape[2] != theirs.shape[2]:
        keys.append("stem=large" if theirs.shape[2] == 7 else "stem=small")
    return f"; try {' '.join(keys)}" if keys else ""


def some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")


def sized(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a number"
