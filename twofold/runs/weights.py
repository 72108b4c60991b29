"""The file `encoder.safetensors`: the weights of a trained encoder and, in its metadata, what is needed to use them.

`save_encoder` writes it at the end of a run, and `load_encoder` reads it.
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

from twofold.errors import TwofoldError, how_to_resume
from twofold.files import write_atomically
from twofold.models import build_encoder, has_name, name_of
from twofold.randomness import seeded
from twofold.runs.preprocess import Chain, Preprocess

METADATA_KEY = "twofold"  # the key of the description in the metadata of the file


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
        `image_size`, `mean` and `std`.
    """
    save_tensors(path, encoder.state_dict(), {METADATA_KEY: json.dumps(description)})


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    """Write tensors to a safetensors file. Equal tensors and metadata give equal bytes."""
    # Cloned, because safetensors refuses tensors that share memory, such as tied weights.
    copies = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    try:
        write_atomically(path, with_sorted_header(save(copies, metadata={"format": "pt", **metadata})))
    except (OSError, SafetensorError) as error:
        raise TwofoldError(
            f"{path} could not be written: {error}; free some disk space, or make {path.parent} writable"
        ) from None


def with_sorted_header(content: bytes) -> bytes:
    """Return the content of a safetensors file with its metadata sorted by key.

    safetensors writes the keys in random order, but equal runs must write equal bytes.
    """
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # so that the tensors start at a multiple of 8 bytes
    return len(text).to_bytes(8, "little") + text + content[start:]


def read_encoder(run: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the weights and the description of an encoder, from a run or from an encoder.safetensors file."""
    path = encoder_file(run)
    try:
        with safe_open(path, framework="pt") as file:
            description = json.loads((file.metadata() or {})[METADATA_KEY])
        return load_file(path), description
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise TwofoldError(
            f"{path} is not an encoder that Twofold wrote ({error!r}): pass a run folder or its encoder.safetensors"
        ) from None


def encoder_file(run: Any) -> Path:
    """Return the path of a run's encoder.safetensors. The path of a file is returned unchanged."""
    path = Path(getattr(run, "path", run))
    if path.is_dir():
        path = path / "encoder.safetensors"
    if not path.exists():
        if (path.parent / "config.json").exists():
            raise TwofoldError(f"{path.parent} is not finished: run `{how_to_resume(path.parent)}` first")
        raise TwofoldError(f"{path} does not exist: pass the folder of a finished run, or its encoder.safetensors")
    return path


def load_encoder(run: Any, *, encoder: nn.Module | None = None) -> nn.Module:
    """Load a trained encoder.

    Parameters
    ----------
    run : str, Path or Run
        A run folder, or the path of an encoder.safetensors file.
    encoder : nn.Module, optional
        A module of the same class, if the run trained your own module. The weights are loaded into it.

    Returns
    -------
    nn.Module
        The encoder, in evaluation mode. It maps preprocessed images `[N, C, S, S]` to features `[N, K]`. Its module
        `preprocess` prepares Pillow images or uint8 pixels.

    Examples
    --------
    >>> encoder = twofold.load_encoder("runs/frossl-photos-1")  # doctest: +SKIP
    >>> images = encoder.preprocess([PIL.Image.open("cat.jpg"), PIL.Image.open("dog.jpg")])  # doctest: +SKIP
    >>> with torch.no_grad():  # doctest: +SKIP
    ...     features = encoder(images)
    """
    path = encoder_file(run)
    tensors, description = read_encoder(path)
    if encoder is not None and name_of(encoder) is encoder:
        raise TwofoldError(
            f"encoder='{encoder}' is a name: pass the module that was trained, or leave encoder out if Twofold built it"
        )
    try:
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
            description["image_size"], description["channels"], description["mean"], description["std"]
        )
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, MemoryError) as error:
        reason = " ".join(str(error).split())[:300]
        raise TwofoldError(
            f"{path} does not fit the encoder: {reason}; pass the module that was trained, or restore the file"
        ) from error
    return encoder.eval()
