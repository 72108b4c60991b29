"""The keys of a run, as dataclasses with types, bounds, help and defaults.

Every default is written once: as a field below, or in the signature of a method's function (methods/catalog).
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from twofold.keys import (
    Bounds,
    Count,
    Momentum,
    NonNegative,
    PerView,
    Positive,
    Probability,
    section_keys,
)


@dataclass(frozen=True)
class Augment:
    """Random changes of the images, drawn for each sample and view. `PerView`: one value, or one for each view."""

    crop_scale: Annotated[
        tuple[Probability, Probability], "area of the crop, as a part of the image; 1,1 with ratio 1,1: none"
    ] = (0.2, 1.0)
    crop_ratio: Annotated[tuple[Positive, Positive], "width of the crop over its height"] = (3 / 4, 4 / 3)
    interpolation: Annotated[
        Literal["bilinear", "bicubic"], "how crops are resized: torchvision's default, or sharper, as solo-learn has it"
    ] = "bilinear"
    flip: Annotated[PerView, "probability of a mirror image, left and right swapped"] = 0.5
    rotate: Annotated[float, Bounds(0, 180), "largest rotation in degrees"] = 0.0
    shear: Annotated[float, Bounds(0, 80), "largest shear in degrees"] = 0.0
    shift: Annotated[Probability, "largest shift, as a part of the image's side"] = 0.0
    scale: Annotated[tuple[Positive, Positive], "zoom factor"] = (1.0, 1.0)
    jitter: Annotated[PerView, "probability of colour jitter; of more than 3 channels the first 3 have colour"] = 0.8
    brightness: Annotated[NonNegative, "strength: factor from 1-s to 1+s"] = 0.4
    contrast: Annotated[NonNegative, "strength: factor from 1-s to 1+s"] = 0.4
    saturation: Annotated[NonNegative, "strength: factor from 1-s to 1+s"] = 0.2
    hue: Annotated[float, Bounds(0, 0.5), "largest turn of the hue, of a full circle"] = 0.1
    grayscale: Annotated[PerView, "probability of dropping colour"] = 0.2
    blur: Annotated[PerView, "probability of Gaussian blur"] = 0.0
    blur_sigma: Annotated[tuple[Positive, Positive], "its standard deviation in pixels"] = (0.1, 2.0)
    solarize: Annotated[PerView, "probability of inverting the pixels brighter than one half"] = 0.0
    noise: Annotated[Probability, "standard deviation of Gaussian pixel noise (images are 0 to 1)"] = 0.0
    extra_scale: Annotated[
        tuple[Probability, Probability] | None,
        "area of a crop of their own, not mirrored, for channels after the third; none: cropped with the first three",
    ] = None
    extra_blur: Annotated[PerView, "probability of blur for those channels, where extra_scale is set"] = 0.0
    local_views: Annotated[int, Bounds(0), "small crops of each image beside its views (multi-crop)"] = 0
    local_size: Annotated[Count | None, "side of the small crops; none: half of image_size"] = None
    local_scale: Annotated[tuple[Probability, Probability], "area of the small crops, as a part of the image"] = (
        0.05,
        0.4,
    )

    @property
    def crops(self) -> bool:
        """Whether views are cut out of their images."""
        return not self.crop_scale == self.crop_ratio == (1, 1)


@dataclass(frozen=True)
class Graph:
    """What is known of which images belong together; a section of the methods that train on such a graph."""

    source: Annotated[
        str,
        "views (each image with itself), labels, groups (of the list of images), neighbours, or a CSV file of "
        "groups: file name or index, group",
    ] = "views"
    labelled_fraction: Annotated[Probability, "part of the labels that is used, with source labels"] = 1.0
    neighbours: Annotated[Count, "nearest images, by pixels, that count as related, with source neighbours"] = 5
    balance: Annotated[bool, "weigh classes or groups against their size, with labels or a file"] = False


@dataclass(frozen=True)
class Head:
    """Where the rows of a head with one for each image are, and how those move that a step does not use."""

    path: Annotated[
        str | None,
        "folder for the rows; none: in memory, or in the run folder if they are too many or several processes train",
    ] = None
    update: Annotated[
        Literal["exact", "multistep"], "as the optimizer would on the whole head, or the paper's epoch at once"
    ] = "exact"


@dataclass(frozen=True)
class Checkpoint:
    seconds: Annotated[NonNegative, "time between checkpoints; 0: after every step"] = 60.0
    keep: Annotated[Count, "checkpoints kept, newest first"] = 2


@dataclass(frozen=True)
class Config:
    """All that decides a run. `parameters` are the method's own; `origin` says which layer set each key."""

    data: Annotated[str, "a name (digits, cifar10, ...), a folder, a .csv/.txt list, .tar shards, a .npy/.npz file"] = (
        "digits"
    )
    data_dir: Annotated[str, "folder with the standard files of the sets that have a name"] = "data"
    class_list: Annotated[str | None, "a text file of class names: only these classes of a folder are used"] = None
    download: Annotated[bool, "fetch missing standard files (checksums are verified)"] = False
    test_fraction: Annotated[
        float, Bounds(0, 0.9), "part held out for evaluation, where there are labels and no test set"
    ] = 0.2
    image_size: Annotated[Annotated[int, Bounds(1, 4096)] | None, "side of the square images the network sees"] = None
    channels: Annotated[Count | None, "1: grey, 3: colour; of other images as many as they have"] = None

    method: Annotated[str, "see `twofold methods`"] = "frossl"
    views: Annotated[Count, "augmented views of each image in a step"] = 2
    encoder: Annotated[str, "resnet18, resnet34, resnet50, conv (for tiny images), or timm:NAME"] = "resnet18"
    stem: Annotated[
        Literal["small", "small-padded", "small-pool", "large"],
        "ResNet's first layers: 3x3, 3x3 with two pixels around the image, 3x3 with max-pool, 7x7 with max-pool",
    ] = "small"

    init: Annotated[
        str | None, "weights to start from: a run, a .safetensors file, or timm:NAME for its pretrained ones"
    ] = None

    epochs: Annotated[int, Bounds(1, 10**7), "passes over the images"] = 100
    batch_size: Annotated[int, Bounds(2), "images in a step, over all devices"] = 256
    pieces: Annotated[
        Count, "parts in which a batch passes the network, to need less memory; the objective sees all of it"
    ] = 1
    drop_last: Annotated[bool, "leave out the short batch at the end of an epoch"] = True
    seed: Annotated[int, Bounds(0, 2**63 - 1), "of weights, order and augmentation"] = 0
    optimizer: Annotated[Literal["sgd", "adam", "adamw", "lars"], "how weights are moved"] = "sgd"
    lr: Annotated[Positive, "learning rate, as stated for a batch of 256"] = 0.1
    lr_scaling: Annotated[Literal["linear", "sqrt", "none"], "how lr follows batch_size / 256"] = "linear"
    momentum: Annotated[Momentum, "of sgd and lars"] = 0.9
    betas: Annotated[tuple[Momentum, Momentum], "of adam and adamw"] = (0.9, 0.999)
    weight_decay: Annotated[NonNegative, "not on biases and norms, unless decay_all"] = 1e-4
    decay_all: Annotated[bool, "weight decay also on biases and norms"] = False
    lars_eta: Annotated[Positive, "LARS trust coefficient"] = 0.02
    clip: Annotated[NonNegative, "largest gradient norm; 0: no clipping"] = 0.0
    schedule: Annotated[Literal["cosine", "constant", "restarts"], "of the learning rate, after the warm-up"] = "cosine"
    warmup_epochs: Annotated[NonNegative, "epochs of linear warm-up"] = 10.0
    restart_epochs: Annotated[Positive, "length of a cycle of schedule=restarts"] = 15.0
    online_lr: Annotated[Positive, "learning rate of the online probe (SGD, gradient-isolated)"] = 0.1

    map_points: Annotated[int, Bounds(0, 5000), "images on the map of the report; 0: no map"] = 1000
    log: Annotated[
        tuple[Literal["tensorboard", "wandb"], ...] | None, "where metrics are also sent, beside metrics.jsonl"
    ] = None

    device: Annotated[str, "auto, cpu, cuda, cuda:1, mps"] = "auto"
    precision: Annotated[
        Literal["auto", "float32", "bf16"],
        "auto: bf16 autocast (and TF32 products in the objective) on CUDA, else float32",
    ] = "auto"
    compile: Annotated[bool | None, "the step as one CUDA graph; none: on CUDA, from 2,000 steps on"] = None
    augment: Augment = field(default_factory=Augment)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    origin: Mapping[str, str] = field(default_factory=dict)

    @property
    def scaled_lr(self) -> float:
        """The learning rate as used, at the top of its schedule."""
        ratio = self.batch_size / 256
        return self.lr * {"linear": ratio, "sqrt": math.sqrt(ratio), "none": 1.0}[self.lr_scaling]


RUN_KEYS = section_keys(Config)


SECTIONS: dict[str, type] = {"augment": Augment, "checkpoint": Checkpoint, "graph": Graph, "head": Head}


def flat(config: Config) -> dict[str, Any]:
    """The dotted keys of a configuration and their values, method parameters included."""
    values: dict[str, Any] = {}
    for name in RUN_KEYS:
        section, dot, rest = name.partition(".")
        values[name] = getattr(getattr(config, section), rest) if dot else getattr(config, name)
    for name, value in config.parameters.items():
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            values |= {f"{name}.{field}": part for field, part in dataclasses.asdict(value).items()}
        else:
            values[name] = value
    return values
