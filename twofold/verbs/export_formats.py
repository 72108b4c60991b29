"""The export formats: how each is written, read again for verification, and loaded without Twofold.

An exported encoder maps normalised images `[N, C, S, S]` to features `[N, K]`.
"""

import copy
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from twofold.errors import TwofoldError, how_to_install
from twofold.models.adapter import AdaptedEncoder
from twofold.models.encoders import STEMS, TIMM
from twofold.runs.tensor_files import load_tensors
from twofold.runs.weights import save_encoder

FOLDER = "folder"  # a folder with the weights and a model card, in addition to the formats of files below

Encode = Callable[[Tensor], Tensor]
Lines = dict[str, list[str]]  # library → lines of Python that load the file as `encoder`


@dataclass(frozen=True)
class Exported:
    """The encoder to export, the description to build it again, and example images `[2, C, S, S]`."""

    encoder: nn.Module
    description: dict[str, Any]
    example: Tensor
    outputs: tuple[str, ...] = ("features",)  # the names of what the encoder returns


@dataclass(frozen=True)
class Format:
    """An export format."""

    ending: str
    write: Callable[[Exported, Path], None]
    read: Callable[[Exported, Path], Encode | None]  # None if it cannot be run here
    how_to_load: Callable[[Exported, str], Lines]


def example_of(encoder: nn.Module, description: dict[str, Any]) -> Exported:
    """Return what is exported, with two random images of the size in the description."""
    size = (description["channels"], description["image_size"], description["image_size"])
    return Exported(encoder, description, torch.randn(2, *size, generator=torch.Generator().manual_seed(0)))


def without_preprocessing(network: nn.Module) -> tuple[nn.Module, nn.Module]:
    """Remove the preprocessing from a network, because the exported one takes tensors only.

    Returns the network, and the encoder in it. They differ if the network has an adapter.
    """
    plain: Any = network.encoder if isinstance(network, AdaptedEncoder) else network
    if hasattr(plain, "preprocess"):
        del plain.preprocess
    return network, plain


def write_safetensors(exported: Exported, path: Path) -> None:
    save_encoder(path, exported.encoder, exported.description)


def read_safetensors(exported: Exported, path: Path) -> Encode:
    network = copy.deepcopy(exported.encoder)
    network.load_state_dict(load_tensors(path))
    return network


def load_safetensors(exported: Exported, name: str) -> Lines:
    """Return lines for each library that has this network. They replace its classifier (fc): encoders have none."""
    kind, channels = exported.description["encoder"], exported.description["channels"]
    weights = [
        "from safetensors.torch import load_file",
        f"encoder.load_state_dict(load_file({name!r}))",
        "encoder = encoder.eval()",
    ]
    lines = {"twofold": ["import twofold", f"encoder = twofold.load_encoder({name!r})"]}
    if kind.startswith("resnet"):
        stem = stem_lines(exported.description["stem"], channels)
        vision = ["import torch", "import torchvision", f"encoder = torchvision.models.{kind}()"]
        lines["torchvision"] = [*vision, "encoder.fc = torch.nn.Identity()", *stem, *weights]
        models = ["import timm", "import torch", f"encoder = timm.create_model({kind!r}, num_classes=0)"]
        lines["timm"] = [*models, *stem, *weights]
    elif kind.startswith(TIMM):
        size = f", img_size={exported.description['image_size']}" if hasattr(exported.encoder, "patch_embed") else ""
        asked = f"{kind.removeprefix(TIMM)!r}, num_classes=0, in_chans={channels}{size}"
        lines["timm"] = ["import timm", f"encoder = timm.create_model({asked})", *weights]
    return lines


def stem_lines(stem: str, channels: int) -> list[str]:
    """Return lines that give a library's ResNet the stem of ours. None are needed for `large` with 3 channels."""
    side, stride, padding, pooled = STEMS[stem]
    convolution = f"encoder.conv1 = torch.nn.Conv2d({channels}, 64, {side}, {stride}, {padding}, bias=False)"
    lines = [] if stem == "large" and channels == 3 else [convolution]
    return lines if pooled else [*lines, "encoder.maxpool = torch.nn.Identity()"]


def write_torchscript(exported: Exported, path: Path) -> None:
    buffer = io.BytesIO()  # torch ends the process if it writes to a full disk
    torch.jit.save(torch.jit.trace(exported.encoder, exported.example), buffer)
    path.write_bytes(buffer.getvalue())


def read_torchscript(exported: Exported, path: Path) -> Encode:  # noqa: ARG001 — the file is complete
    return torch.jit.load(path)


def load_torchscript(exported: Exported, name: str) -> Lines:  # noqa: ARG001
    return {"torch": ["import torch", f"encoder = torch.jit.load({name!r})"]}


def write_onnx(exported: Exported, path: Path) -> None:
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise TwofoldError(
            f"export to ONNX needs onnx and onnxscript, which cannot be imported ({error}): {how_to_install('onnx')}"
        ) from None
    torch.onnx.export(
        exported.encoder,
        (exported.example,),
        str(path),
        dynamo=True,
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        input_names=["images"],
        output_names=list(exported.outputs),
        external_data=False,
        verbose=False,
    )


def read_onnx(exported: Exported, path: Path) -> Encode | None:
    """Return a function that computes the last output."""
    try:
        import onnxruntime
    except ImportError:
        return None
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda images: torch.from_numpy(session.run([exported.outputs[-1]], {"images": images.numpy()})[0])


def load_onnx(exported: Exported, name: str) -> Lines:  # noqa: ARG001
    return {
        "onnxruntime": [
            "import onnxruntime",
            f"session = onnxruntime.InferenceSession({name!r})",
            "encoder = lambda images: session.run(['features'], {'images': images})[0]",
        ]
    }


FORMATS = {
    "safetensors": Format(".safetensors", write_safetensors, read_safetensors, load_safetensors),
    "torchscript": Format(".pt", write_torchscript, read_torchscript, load_torchscript),
    "onnx": Format(".onnx", write_onnx, read_onnx, load_onnx),
}
