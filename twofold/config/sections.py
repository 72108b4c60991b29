"""The keys of a run, as dataclasses with types, bounds, help texts and defaults.

Each default is written once: as a field here, or in the signature of a method's function (`methods/catalog`).
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
    """Random changes of the images, drawn for each image and view. `PerView` means one value, or one for each view."""

    crop_scale: Annotated[
        tuple[Probability, Probability],
        "smallest and largest area of the crop, as a fraction of the image; no crops if this and crop_ratio are 1,1",
    ] = (0.2, 1.0)
    crop_ratio: Annotated[tuple[Positive, Positive], "smallest and largest ratio of width to height of the crop"] = (
        3 / 4,
        4 / 3,
    )
    interpolation: Annotated[
        Literal["bilinear", "bicubic"],
        "interpolation of resized crops: bilinear as in torchvision, or bicubic (sharper) as in solo-learn",
    ] = "bilinear"
    flip: Annotated[PerView, "probability of a horizontal flip"] = 0.5
    rotate: Annotated[float, Bounds(0, 180), "largest rotation, in degrees"] = 0.0
    shear: Annotated[float, Bounds(0, 80), "largest shear, in degrees"] = 0.0
    shift: Annotated[Probability, "largest shift, as a fraction of the side of the image"] = 0.0
    scale: Annotated[tuple[Positive, Positive], "smallest and largest zoom factor"] = (1.0, 1.0)
    jitter: Annotated[PerView, "probability of colour jitter, which changes at most the first three channels"] = 0.8
    brightness: Annotated[NonNegative, "strength s: brightness factor from 1-s to 1+s"] = 0.4
    contrast: Annotated[NonNegative, "strength s: contrast factor from 1-s to 1+s"] = 0.4
    saturation: Annotated[NonNegative, "strength s: saturation factor from 1-s to 1+s"] = 0.2
    hue: Annotated[float, Bounds(0, 0.5), "largest shift of the hue, as a fraction of the full colour circle"] = 0.1
    grayscale: Annotated[PerView, "probability of converting to greyscale"] = 0.2
    blur: Annotated[PerView, "probability of Gaussian blur"] = 0.0
    blur_sigma: Annotated[
        tuple[Positive, Positive], "smallest and largest standard deviation of the blur, in pixels"
    ] = (0.1, 2.0)
    solarize: Annotated[PerView, "probability of solarisation, which inverts pixels brighter than 0.5"] = 0.0
    noise: Annotated[Probability, "standard deviation of Gaussian pixel noise, for pixels from 0 to 1"] = 0.0
    extra_scale: Annotated[
        tuple[Probability, Probability] | None,
        "smallest and largest area of a separate crop, without flip, for channels after the third; none: the same crop "
        "as for the first three channels",
    ] = None
    extra_blur: Annotated[PerView, "probability of blur for channels after the third, if extra_scale is set"] = 0.0
    transform: Annotated[
        str | None,
        "function of your own that changes views, FILE.py:FUNCTION or MODULE:FUNCTION: from float32 [N, C, S, S], 0 to "
        "1, and an object that draws random numbers, to the same shape",
    ] = None
    transform_mode: Annotated[
        Literal["after", "instead"], "apply transform after the other augmentations, or instead of them"
    ] = "after"
    local_views: Annotated[
        int, Bounds(0), "number of small crops of each image, in addition to its views (multi-crop)"
    ] = 0
    local_size: Annotated[Count | None, "side of the small crops, in pixels; none: half of image_size"] = None
    local_scale: Annotated[
        tuple[Probability, Probability], "smallest and largest area of the small crops, as a fraction of the image"
    ] = (0.05, 0.4)

    @property
    def crops(self) -> bool:
        """Whether views are random crops of their images."""
        return not self.crop_scale == self.crop_ratio == (1, 1)


@dataclass(frozen=True)
class Graph:
    """Which images belong together; a section of the relational methods."""

    source: Annotated[
        str,
        "which images are related: views (views of one image only), labels, groups (column 'group' of an image list), "
        "neighbours, duplicates (near-identical images, found by their pixels), teacher (the features of encoder), a "
        "file of groups or of weighted pairs, or a function, FILE.py:FUNCTION, from indices [N] to weights [N, N]",
    ] = "views"
    encoder: Annotated[
        str | None,
        "encoder whose features define neighbours or the teacher: a run, a .safetensors or .onnx file, "
        "efficientnet-lite0 or timm:NAME; none: neighbours by pixels",
    ] = None
    labelled_fraction: Annotated[Probability, "fraction of the labels to use, with source=labels"] = 1.0
    neighbours: Annotated[Count, "number of nearest images to which an image is related, with source=neighbours"] = 5
    balance: Annotated[
        bool, "give small classes or groups more weight, with source=labels, groups, duplicates or a file"
    ] = False


@dataclass(frozen=True)
class Head:
    """Where the per-image classifier keeps its rows, and how rows that a step does not use are updated."""

    path: Annotated[
        str | None,
        "folder for the classifier rows; none: in memory, or in the run folder if there are many rows or several "
        "processes",
    ] = None
    update: Annotated[
        Literal["exact", "multistep"],
        "how classifier rows outside the batch are updated: exact (as if the optimizer updated them at every step), or "
        "multistep (as in the paper, by a whole epoch at once)",
    ] = "exact"


@dataclass(frozen=True)
class Checkpoint:
    """When the trainer writes a checkpoint, and how many it keeps."""

    seconds: Annotated[NonNegative, "seconds between checkpoints; 0: after every step"] = 60.0
    keep: Annotated[
        Count, "number of newest checkpoints to keep; unless you set it, a finished run keeps only the last one"
    ] = 2


@dataclass(frozen=True)
class Config:
    """The configuration of a run. Its attributes are the keys that `twofold methods NAME` explains, and these:

    Attributes
    ----------
    parameters : mapping
        The method's own parameters.
    origin : mapping
        The layer that set each key, such as `user` or `method`. A key that is missing has its default.
    """

    data: Annotated[
        str,
        "named dataset (digits, cifar10, ...), folder, .csv or .txt list, .tar shards, or .npy or .npz file",
    ] = "digits"
    data_dir: Annotated[str, "folder with the files of named datasets"] = "data"
    class_list: Annotated[str | None, "text file with class names; only these classes of a folder are used"] = None
    pages: Annotated[
        Literal["first", "all"],
        "pages of a TIFF file: first, or all (each page is an image; those of a file are a group)",
    ] = "first"
    pixel_limit: Annotated[
        Count | None,
        "most pixels of an image file; larger ones are skipped; none: 89,478,485, or 33,554,432 for JPEG 2000 and AVIF",
    ] = None
    pixel_range: Annotated[
        tuple[float, float] | Literal["type", "image"],
        "pixel values that become black and white in images of more than 8 bits: two numbers (0,4095), type (the range "
        "of the type: 0,65535 for 16 bits, 0,1 for floats), or image (each image from its own 0.1th to 99.9th "
        "percentile); unless you set it, chosen from the images: 0,4095 if all sampled values are below 4096",
    ] = "type"
    download: Annotated[bool, "download missing files of named datasets, and verify their checksums"] = False
    test_fraction: Annotated[
        float, Bounds(0, 0.9), "fraction of the images to hold out for evaluation, if there are labels but no test set"
    ] = 0.2
    unlabelled_fraction: Annotated[
        float,
        Bounds(0, 0.9),
        "fraction of the images to hold out if there are no labels and no test set, to judge without labels whether "
        "training helped",
    ] = 0.0
    image_size: Annotated[
        Annotated[int, Bounds(1, 4096)] | None,
        "side of the square input images, in pixels; none: chosen from the data",
    ] = None
    picture_size: Annotated[
        Annotated[int, Bounds(0, 8192)] | Literal["auto"],
        "shorter side of the pictures that random crops are taken from, with their whole aspect ratio, in pixels; "
        "auto: twice image_size if that fits into memory and disk; 0: crops are taken from the middle square of "
        "image_size",
    ] = 0  # 0, because runs of earlier versions were trained on squares and their configuration does not have the key
    channels: Annotated[
        Count | None,
        "number of channels: 1 (grey), 3 (colour), or as many as the images have; none: chosen from the data",
    ] = None

    method: Annotated[str, "name of the method; `twofold methods` lists all"] = "frossl"
    views: Annotated[Count, "number of augmented views of each image per step"] = 2
    encoder: Annotated[
        str,
        "encoder: resnet18, resnet34, resnet50, efficientnet-lite0, conv (for tiny images), conv-patches (for short "
        "runs and few images), or timm:NAME",
    ] = "resnet18"
    stem: Annotated[
        Literal["small", "small-padded", "small-pool", "large"],
        "first layers of a ResNet: small (3x3 convolution), small-padded (small with two pixels of padding), "
        "small-pool (small with max-pool), or large (7x7 convolution with max-pool)",
    ] = "small"

    init: Annotated[
        str | None,
        "initial weights: a run folder, a .safetensors file, efficientnet-lite0, or timm:NAME for pretrained weights; "
        "none: random",
    ] = None
    recipe: Annotated[
        Literal["scratch", "short", "continued"],
        "settings to start from: scratch (the method's own, for new weights), short (for hundreds of steps; the "
        "default with --minutes on a CPU if there is time for fewer than 2,000 steps), or continued (small changes of "
        "pretrained weights; the default with init, and for your own module)",
    ] = "scratch"
    mean: Annotated[
        tuple[float, ...] | None,
        "mean of each channel that the encoder's input is normalised with, for pixels from 0 to 1; none: the encoder's "
        "own with pretrained weights, else that of the training images",
    ] = None
    std: Annotated[tuple[Positive, ...] | None, "standard deviation of each channel, as for mean; set both or none"] = (
        None
    )
    freeze: Annotated[
        float | tuple[str, ...] | None,
        "parts of the encoder that are not trained: a fraction of its blocks from the input on (0.5), a number of "
        "blocks (3), all but the last ones (-2), or names of modules (conv1,layer1)",
    ] = None
    freeze_batchnorm: Annotated[
        Literal["none", "statistics", "all"],
        "BatchNorm layers of the encoder: none (each batch has its own statistics), statistics (use the running "
        "statistics and keep them), or all (do not train scale and shift either)",
    ] = "none"
    encoder_lr: Annotated[
        Positive | None, "learning rate of the encoder, with the scaling and schedule of lr; none: the same as lr"
    ] = None
    layer_decay: Annotated[
        float,
        Bounds(0, 1, above=True),
        "factor of the learning rate from each block of the encoder to the block before it",
    ] = 1.0
    head_epochs: Annotated[
        NonNegative, "epochs at the start in which only the projector and other heads are trained, not the encoder"
    ] = 0.0

    adapter: Annotated[
        bool,
        "fit a linear map of the features to the training images at the end, in closed form, and keep it if it is "
        "better (see `twofold adapt`)",
    ] = False

    epochs: Annotated[int, Bounds(1, 10**7), "number of passes over the training images"] = 100
    batch_size: Annotated[int, Bounds(2), "images per step, over all processes"] = 256
    pieces: Annotated[
        Count, "number of micro-batches that a batch is split into to save memory; the loss is that of the whole batch"
    ] = 1
    drop_last: Annotated[bool, "drop the last, incomplete batch of an epoch"] = True
    seed: Annotated[int, Bounds(0, 2**63 - 1), "seed of the weights, the order of images, and the augmentation"] = 0
    optimizer: Annotated[Literal["sgd", "adam", "adamw", "lars"], "optimizer that updates the weights"] = "sgd"
    lr: Annotated[Positive, "learning rate at batch size 256; lr_scaling adapts it to batch_size"] = 0.1
    lr_scaling: Annotated[Literal["linear", "sqrt", "none"], "how the learning rate scales with batch_size / 256"] = (
        "linear"
    )
    momentum: Annotated[Momentum, "momentum of sgd and lars"] = 0.9
    betas: Annotated[tuple[Momentum, Momentum], "betas of adam and adamw"] = (0.9, 0.999)
    weight_decay: Annotated[NonNegative, "weight decay; biases and norms have none unless decay_all=true"] = 1e-4
    decay_all: Annotated[bool, "apply weight decay also to biases and norms"] = False
    lars_eta: Annotated[Positive, "trust coefficient of lars"] = 0.02
    clip: Annotated[NonNegative, "largest norm of the gradient; 0: no clipping"] = 0.0
    schedule: Annotated[
        Literal["cosine", "constant", "restarts"], "schedule of the learning rate after the warm-up"
    ] = "cosine"
    warmup_epochs: Annotated[NonNegative, "epochs of linear warm-up of the learning rate"] = 10.0
    schedule_epochs: Annotated[
        Positive | None,
        "epoch at which schedule=cosine reaches 0; the run may end sooner, at a higher learning rate; none: the last "
        "epoch of the run",
    ] = None
    restart_epochs: Annotated[Positive, "epochs per cycle, with schedule=restarts"] = 15.0
    online_lr: Annotated[
        Positive,
        "learning rate of the online probe, a linear classifier that SGD trains during the run; the encoder gets no "
        "gradient from it",
    ] = 0.1

    select: Annotated[
        Literal["last", "best"],
        "encoder to keep: last (after the last step), or best (an earlier one, or the one before training, if its "
        "views of held-out images find each other clearly better; needs no labels)",
    ] = "last"
    map_points: Annotated[int, Bounds(0, 5000), "number of images on the map of the report; 0: no map"] = 1000
    log: Annotated[
        tuple[Literal["tensorboard", "wandb"], ...] | None, "where to send metrics in addition to metrics.jsonl"
    ] = None

    device: Annotated[str, "device: auto, cpu, cuda, cuda:1, mps, ..."] = "auto"
    precision: Annotated[
        Literal["auto", "float32", "bf16"],
        "precision: float32, bf16 (autocast, and on CUDA TF32 in the objective), or auto (bf16 on CUDA, else float32, "
        "except in long runs on a CPU where bf16 is measured to be faster)",
    ] = "auto"
    compile: Annotated[
        bool | None, "run each step as one CUDA graph; none: do so if the run is on CUDA and has 2,000 steps or more"
    ] = None
    augment: Augment = field(default_factory=Augment)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    origin: Mapping[str, str] = field(default_factory=dict)

    @property
    def scaled_lr(self) -> float:
        """The learning rate after scaling, at the peak of its schedule."""
        ratio = self.batch_size / 256
        return self.lr * {"linear": ratio, "sqrt": math.sqrt(ratio), "none": 1.0}[self.lr_scaling]


RUN_KEYS = section_keys(Config)


SECTIONS: dict[str, type] = {"augment": Augment, "checkpoint": Checkpoint, "graph": Graph, "head": Head}


def flat(config: Config) -> dict[str, Any]:
    """The dotted keys of a configuration and their values, including the method's parameters."""
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
