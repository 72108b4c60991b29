"""A trained encoder as one file: weights in safetensors, and in its header all that is needed to use them.

Runs write it at their end (`save_encoder`); users and all verbs read it (`load_encoder`).
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn

from twofold.errors import TwofoldError
from twofold.files import write_atomically
from twofold.models import build_encoder, has_name, name_of
from twofold.randomness import seeded
from twofold.runs.preprocess import Chain, Preprocess

HEADER = "twofold"  # the key of our JSON in the file's metadata


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """16 hexadecimal digits of names, types, shapes and every byte."""
    state = hashlib.blake2b(digest_size=8)
    for name, value in sorted(tensors.items()):
        content = value.detach().cpu().contiguous()
        state.update(repr((name, str(content.dtype), tuple(content.shape))).encode())
        state.update(content.flatten().view(torch.uint8).numpy().data)
    return state.hexdigest()


def save_encoder(path: Path, encoder: nn.Module, description: dict[str, Any]) -> None:
    """`description`: encoder, stem, channels, image_size, mean, std: the arguments that `load_encoder` builds from."""
    save_tensors(path, encoder.state_dict(), {HEADER: json.dumps(description)})


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    # Copies: safetensors refuses tensors that share memory, such as tied weights.
    copies = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    try:
        write_atomically(path, with_sorted_header(save(copies, metadata={"format": "pt", **metadata})))
    except (OSError, SafetensorError) as error:
        raise TwofoldError(f"{path} could not be written: {error}") from None


def with_sorted_header(content: bytes) -> bytes:
    """The same file with its metadata sorted by key. safetensors writes them in an order that varies, and equal runs
    must write equal bytes."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # the tensors start at a multiple of 8 bytes
    return len(text).to_bytes(8, "little") + text + content[start:]


def read_encoder(run: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Weights and description of a run's encoder (or of an encoder.safetensors file)."""
    path = encoder_file(run)
    try:
        with safe_open(path, framework="pt") as file:
            description = json.loads((file.metadata() or {})[HEADER])
        return load_file(path), description
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise TwofoldError(f"{path} is not an encoder that Twofold wrote: {error!r}") from None


def encoder_file(run: Any) -> Path:
    path = Path(getattr(run, "path", run))
    if path.is_dir():
        path = path / "encoder.safetensors"
    if not path.exists():
        if (path.parent / "config.json").exists():
            raise TwofoldError(f"{path.parent} is not finished: twofold resume {path.parent} goes on with it")
        raise TwofoldError(f"{path} does not exist: is the run finished?")
    return path


def load_encoder(run: Any, *, encoder: nn.Module | None = None) -> nn.Module:
    """The encoder of a run (or of an encoder.safetensors file), in evaluation mode, with `.preprocess`.

    Runs that trained a module of your own need that module as `encoder`.
    """
    path = encoder_file(run)
    tensors, description = read_encoder(path)
    if encoder is not None and name_of(encoder) is encoder:
        raise TwofoldError(
            f"encoder='{encoder}' is a name: give the module that was trained, or nothing for one of ours"
        )
    try:
        if encoder is None:
            if not has_name(description["encoder"]):
                raise TwofoldError(f"{path} holds weights of your own {description['encoder']}: pass it as encoder=")
            with seeded(0):  # what is drawn is replaced
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
            description["image_size"], description["channels"], description["mean"], description["std"]
        )
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, MemoryError) as error:
        reason = " ".join(str(error).split())[:300]
        raise TwofoldError(f"{path} describes an encoder that does not go with its weights: {reason}") from error
    return encoder.eval()
