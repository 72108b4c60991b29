"""The files `encoder.safetensors` and `adapter.safetensors`: tensors, and in their metadata how to use them.

`save_encoder` writes the first at the end of a run. `save_adapter` writes the second next to it: a linear map of the
features, which was made for these weights. `load_encoder` reads both. The encoder's file does not change if there is an
adapter, so that other libraries can load it.
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from twofold import schema
from twofold.errors import TwofoldError, how_to_resume
from twofold.files import refuse_special, write_atomically
from twofold.models import build_encoder, has_name, name_of
from twofold.models.adapter import AdaptedEncoder, Adapter
from twofold.models.onnx_encoder import ONNX, OnnxEncoder
from twofold.randomness import seeded
from twofold.runs.folder import adapter_file
from twofold.runs.preprocess import Chain, Preprocess
from twofold.runs.tensor_files import load_tensors, save_tensors
from twofold.schema import Check, fields, number, whole

ENCODER_FILE = "encoder.safetensors"
WEIGHTS_KEY = "encoder_fingerprint"  # the key of the weights in the description of an adapter
METADATA_KEY = "twofold"  # the key of the description in the metadata of a file
MOST_PIXELS = 2**14  # of the side of an image

# What the description of an encoder contains, and that of an adapter.
INPUT = fields(
    {
        "encoder": schema.text,
        "stem": schema.text,
        "channels": whole(1, MOST_PIXELS),
        "image_size": whole(1, MOST_PIXELS),
        "mean": schema.items(number()),
        "std": schema.items(number()),
    },
    {"pixel_range": schema.either(schema.text, schema.items(number(), 2))},
)


def input_problem(description: Any) -> str:
    """Return what is wrong with the description of an encoder, or "". It has a mean and a std for each channel."""
    if problem := INPUT(description):
        return problem
    channels = description["channels"]
    wrong = [name for name in ("mean", "std") if len(description[name]) != channels]
    return f".{wrong[0]} does not have {channels} numbers, one for each channel" if wrong else ""


ADAPTER = fields({"variant": schema.text, "settings": schema.values(number()), WEIGHTS_KEY: schema.text})


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """Return a hash of the names, types, shapes and values of all tensors, as 16 hexadecimal digits."""
    state = hashlib.blake2b(digest_size=8)
    for name, value in sorted(tensors.items()):
        content = value.detach().cpu().contiguous()
        state.update(repr((name, str(content.dtype), tuple(content.shape))).encode())
        state.update(content.flatten().view(torch.uint8).numpy().data)
    return state.hexdigest()


def save_encoder(path: Path, encoder: nn.Module, description: dict[str, Any]) -> None:
    """Write the weights of an encoder and its description.

    Parameters
    ----------
    path
        The file to write.
    encoder
        The trained encoder.
    description
        What `load_encoder` needs to build the encoder and to preprocess images: `encoder`, `stem`, `channels`,
        `image_size`, `mean` and `std`, and `pixel_range` if it is not that of the type.
    """
    save_tensors(path, encoder.state_dict(), {METADATA_KEY: json.dumps(description)})


def read_encoder(run: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the weights and the description of an encoder, from a run or from an encoder.safetensors file."""
    path = encoder_file(run)
    try:
        return read_described(path, input_problem)
    except ValueError as error:
        raise TwofoldError(
            f"{path} is not an encoder that Twofold wrote ({error}): pass a run folder or its encoder.safetensors"
        ) from None


def read_described(path: Path, check: Check) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the checked description of a file. If it is not such a file, this raises ValueError."""
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(METADATA_KEY)
        if text is None:
            raise ValueError("it has no description")
        description = json.loads(text)
        if problem := check(description):
            raise ValueError(f"its description{problem}")
        return load_tensors(path), description
    except (SafetensorError, OSError, RecursionError, MemoryError) as error:
        raise ValueError(str(error) or type(error).__name__) from None


def encoder_file(run: Any) -> Path:
    """Return the path of a run's encoder.safetensors. The path of a file is returned unchanged."""
    path = Path(getattr(run, "path", run))
    if path.is_dir():
        path = path / ENCODER_FILE
    if not path.exists():
        if (path.parent / "config.json").exists():
            raise TwofoldError(f"{path.parent} is not finished: run `{how_to_resume(path.parent)}` first")
        raise TwofoldError(f"{path} does not exist: pass the folder of a finished run, or its encoder.safetensors")
    refuse_special([path, adapter_file(path)])
    return path


def load_encoder(run: Any, *, encoder: nn.Module | None = None, adapter: bool = True) -> nn.Module:
    """Load a trained encoder.

    Parameters
    ----------
    run : str, Path or Run
        A run folder, or the path of an encoder.safetensors file.
    encoder : nn.Module, optional
        A module of the same class, if the run trained your own module. The weights are loaded into it.
    adapter : bool
        Apply the adapter that `twofold adapt` wrote next to the encoder, if there is one.

    Returns
    -------
    nn.Module
        The encoder, in evaluation mode. It maps preprocessed images `[N, C, S, S]` to features `[N, K]`. Its module
        `preprocess` prepares Pillow images or uint8 pixels. With an adapter, its attributes `encoder` and `adapter` are
        the two parts.

    Examples
    --------
    >>> encoder = twofold.load_encoder("runs/frossl-photos-1")  # doctest: +SKIP
    >>> images = encoder.preprocess([PIL.Image.open("cat.jpg"), PIL.Image.open("dog.jpg")])  # doctest: +SKIP
    >>> with torch.no_grad():  # doctest: +SKIP
    ...     features = encoder(images)
    """
    path = encoder_file(run)
    tensors, description = read_encoder(path)
    encoder = build_described(path, tensors, description, encoder)
    found = read_adapter(path, tensors) if adapter else None
    return (encoder if found is None else AdaptedEncoder(encoder, *found)).eval()


def build_described(
    path: Path, tensors: Mapping[str, Tensor], description: Mapping[str, Any], encoder: nn.Module | None
) -> nn.Module:
    """Build the encoder that the metadata of a file describe, with its weights and its `preprocess`.

    `encoder` is a module of the same class, if the run trained the user's own module.
    """
    if encoder is not None and name_of(encoder) is encoder:
        raise TwofoldError(
            f"encoder='{encoder}' is a name: pass the module that was trained, or leave encoder out if Twofold built it"
        )
    try:
        if description["encoder"] == ONNX:
            encoder = OnnxEncoder(tensors["content"], str(path))
        if encoder is None:
            if not has_name(description["encoder"]):
                raise TwofoldError(
                    f"{path} has the weights of your own {description['encoder']}: pass a module of that class as "
                    "encoder="
                )
            with seeded(0):  # leaves torch's random state unchanged; the drawn weights are replaced below
                encoder = build_encoder(
                    description["encoder"],
                    channels=description["channels"],
                    stem=description["stem"],
                    image_size=description["image_size"],
                )
        encoder.load_state_dict(tensors)
        if type(encoder) is nn.Sequential:
            encoder = Chain(OrderedDict(encoder.named_children()))
        encoder.preprocess = Preprocess(
            description["image_size"],
            description["channels"],
            description["mean"],
            description["std"],
            description.get("pixel_range", "type"),
        )
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, MemoryError) as error:
        reason = " ".join(str(error).split())[:300]
        raise TwofoldError(
            f"{path} does not fit the encoder: {reason}; pass the module that was trained, or restore the file"
        ) from error
    return encoder.eval()


def save_adapter(path: Path, adapter: Adapter, weights: Mapping[str, Tensor], description: Mapping[str, Any]) -> None:
    """Write an adapter.

    Parameters
    ----------
    path
        The file to write, from `adapter_file`.
    adapter
        The adapter.
    weights
        The state dict of the encoder that the adapter belongs to.
    description
        How the adapter was made, for readers of the file and for messages.
    """
    text = json.dumps({**description, WEIGHTS_KEY: fingerprint(weights)})
    save_tensors(path, adapter.state_dict(), {METADATA_KEY: text})


def read_adapter(encoder: Path, weights: Mapping[str, Tensor]) -> tuple[Adapter, str] | None:
    """Return the adapter of an encoder file and how it was made, in words, or None if it has none.

    An adapter that was made for other weights is refused.
    """
    path = adapter_file(encoder)
    if not path.exists():
        return None
    try:
        tensors, description = read_described(path, ADAPTER)
        adapter, made_for = Adapter(tensors["mean"], tensors["matrix"]), description[WEIGHTS_KEY]
        name = in_words(description["variant"], description["settings"])
    except (ValueError, KeyError, TwofoldError) as error:
        raise TwofoldError(
            f"{path} is not an adapter that Twofold wrote ({error!r}): remove it, or run `twofold adapt` again"
        ) from None
    if made_for != fingerprint(weights):
        raise TwofoldError(
            f"{path} was made for other weights than those of {encoder.name}: run `twofold adapt` again, remove the "
            "file, or leave the adapter out (--no-adapter, adapter=False)"
        )
    return adapter, name


def copy_adapter(encoder: Path, out: Path, *, wanted: bool) -> None:
    """Copy the adapter of an encoder file next to another file with the same weights.

    If it is not wanted there, an adapter of that other file is removed, because it may belong to other weights.
    """
    source, target = adapter_file(encoder), adapter_file(out)
    if source.resolve() == target.resolve():
        return
    if wanted:
        write_atomically(target, source.read_bytes())
    else:
        target.unlink(missing_ok=True)


def share_adapter(encoder: Path, out: Path, shareable: Callable[[Any], Any]) -> None:
    """Copy the adapter of an encoder file next to another file with the same weights, for other people.

    `shareable` returns the location of the images that the adapter was fitted to, as it may be published.
    """
    tensors, description = read_described(adapter_file(encoder), ADAPTER)
    description |= {key: shareable(description[key]) for key in ("data", "graph") if key in description}
    save_tensors(adapter_file(out), tensors, {METADATA_KEY: json.dumps(description)})


def in_words(variant: str, settings: Mapping[str, float]) -> str:
    """Return the name of a map and its settings, such as "within (shrinkage 0.5)"."""
    chosen = ", ".join(f"{name} {value:g}" for name, value in settings.items())
    return variant + (f" ({chosen})" if chosen else "")
