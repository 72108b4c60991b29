"""`Opened`: an encoder together with the settings of its images. All verbs that accept an encoder use `open_any`.

A run states where its images are, how they are decoded and which of them it held out. Any other encoder gets the images
that the caller passes, in the size and with the channels of its own input.
"""

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from torch import nn

from twofold.config import Config
from twofold.config.resolve import default_encoder_keys
from twofold.data.open import open_source
from twofold.data.source import Source
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.evaluate.encoder import Encoder, is_pretrained, open_encoder
from twofold.evaluate.foreign_encoders import is_written_by_twofold
from twofold.models import name_of
from twofold.models.encoders import ResNet
from twofold.models.onnx_encoder import ONNX, OnnxEncoder
from twofold.runs.preprocess import Preprocess
from twofold.runs.run import Run, config_of
from twofold.runs.weights import read_encoder

TEST_FRACTION = 0.2  # of labelled images without a test set: they are held out to measure an encoder
What = str | Path | Run | nn.Module  # what users pass as an encoder


@dataclass(frozen=True, eq=False)
class Opened:
    """An encoder that is ready to compute features, and the settings of its images.

    Attributes
    ----------
    name : str
        What the caller named, for messages and records.
    run : Path, optional
        The folder of the run, or the folder with an encoder that `adapt` wrote. None for other encoders.
    config : Config
        The configuration of the run. For other encoders, its keys on images and on the encoder are set.
    encoder : Encoder
        The encoder.
    """

    name: str
    run: Path | None
    config: Config
    encoder: Encoder

    @property
    def preprocess(self) -> Preprocess:
        assert isinstance(self.encoder.preprocess, Preprocess)
        return self.encoder.preprocess


def name_of_encoder(what: What) -> str:
    """Return what messages and records call an encoder: its path or name, or the class of a module."""
    return type(what).__name__ if isinstance(what, nn.Module) else os.fspath(what)


def folder_of(what: What) -> Path | None:
    """Return the folder of a run or of an encoder that `adapt` wrote; None for other encoders."""
    if isinstance(what, nn.Module) or is_pretrained(what):
        return None
    path = Path(what).expanduser()
    return path if path.is_dir() else None


def open_any(
    what: What,
    data: Any,
    display: Display,
    *,
    module: str | nn.Module | None = None,
    image_size: int | None = None,
    adapter: bool = True,
    views: int = 1,
) -> Opened:
    """Open an encoder for the images of `data`.

    The parameters are those of `open_encoder`. Encoders that are not in a run folder need `data`.
    """
    name, run = name_of_encoder(what), folder_of(what)

    @cache
    def find_images() -> Source:
        if data is None:
            raise TwofoldError(f"{name} is an encoder without images of its own: give DATA, the images")
        with display.stage("scanning images", 0) as stage:
            return open_source(data, progress=stage, to_train=False)

    encoder = open_encoder(
        what, find_images, module=module, image_size=image_size, adapter=adapter, views=views, say=display.say
    )
    if run is not None:
        return Opened(name, run, config_of(run), encoder)
    description = describe_encoder(what, encoder, module)
    assert isinstance(encoder.preprocess, Preprocess)
    config = Config(
        data="" if data is None else str(data) if isinstance(data, str | Path) else type(data).__name__,
        test_fraction=TEST_FRACTION,
        image_size=description["image_size"],
        channels=description["channels"],
        encoder=description["encoder"],
        stem=description["stem"],
        precision="float32",
        # `auto` is no value of the key: the range is chosen from the images when they are opened.
        pixel_range=cast(Any, encoder.preprocess.decode.pixel_range),
    )
    return Opened(name, None, config, encoder)


def describe_encoder(what: What, opened: Encoder, module: str | nn.Module | None) -> dict[str, Any]:
    """Return what `load_encoder` needs to build an encoder and to preprocess images: the metadata of its file."""
    preprocess = opened.preprocess
    assert isinstance(preprocess, Preprocess)
    if isinstance(opened.network, OnnxEncoder):
        name = ONNX
    elif isinstance(what, nn.Module):
        name = name_of(what)
    elif is_pretrained(what):
        name = str(what).partition(".")[0]  # the tag after the point chooses pretrained weights
    elif module is None or (path := Path(what).expanduser()).is_dir() or is_written_by_twofold(path):
        return read_encoder(Path(what).expanduser())[1]
    else:
        name = name_of(module)
    stem = default_encoder_keys(preprocess.image_size)["stem"]
    if isinstance(opened.network, ResNet) and opened.network.conv1.kernel_size[0] == 7:
        stem = "large"
    return {
        "encoder": name,
        "stem": stem,
        "channels": preprocess.channels,
        "image_size": preprocess.image_size,
        "mean": preprocess.mean.tolist(),
        "std": preprocess.std.tolist(),
        **({} if preprocess.decode.pixel_range in ("type", "auto") else {"pixel_range": preprocess.decode.pixel_range}),
    }
