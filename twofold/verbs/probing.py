"""How well a run's encoder tells classes apart: what `twofold probe` and `twofold knn` measure.

Every number stands beside the same number for raw pixels and for an untrained encoder of the same shape.
"""

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from twofold.config import Config, Graph
from twofold.data.sources import Data
from twofold.data.store import ImageStore
from twofold.device import choose_device
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.evaluate.features import extract, pixels
from twofold.methods import refuse_unregistered
from twofold.models import build_encoder, has_name
from twofold.precision import autocast_of
from twofold.randomness import seeded
from twofold.runs import checkpoint
from twofold.runs.folder import RunFolder
from twofold.runs.initial_weights import as_begun
from twofold.runs.provenance import own_source, same_images, trained_on
from twofold.runs.run import Run, read_data
from twofold.runs.weights import Preprocess, load_encoder
from twofold.train.setup import build_method


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is measured: representations of the same labelled images, rows aligned."""

    data: Data
    classes: tuple[str, ...]
    train_labels: Tensor
    test_labels: Tensor
    representations: dict[str, tuple[Tensor, Tensor]]  # name → features of training and test images
    trained_on: int  # of the test images


def measured(
    subject: Subject, title: str, measure: Callable[[Tensor, Tensor], dict[str, Any]], display: Display
) -> list[dict[str, Any]]:
    rows = []
    with display.stage(title, len(subject.representations)) as stage:
        for done, (name, (train, test)) in enumerate(subject.representations.items(), start=1):
            rows.append({"name": name} | measure(train, test))
            stage(done)
    return rows


def described(run: Any, subject: Subject, layer: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "run": str(Path(run)),
        "data": subject.data.name,
        "layer": layer,
        "train_images": len(subject.train_labels),
        "test_images": len(subject.test_labels),
        "test_images_trained_on": subject.trained_on,
        "classes": list(subject.classes),
        "rows": rows,
    }


def load_probe_data(
    run: str | Path | Run, data: Any, layer: str, encoder: nn.Module | None, display: Display
) -> Subject:
    if layer not in ("pre", "post"):
        raise TwofoldError(f"--layer {layer}: it is pre (the encoder's features) or post (the projector's output)")
    path = Path(run)
    config = Run(path).config
    finished = (path / "encoder.safetensors").exists()
    source = own_source(path, config, display.say, data)
    read = read_data(config, source, display)
    if data is not None and not finished and not same_images(path, read):
        raise TwofoldError(f"{path} is not finished: until then it is measured on its own images alone")
    train, test, classes = read.train.labelled(), read.test, read.classes
    test = None if test is None else test.labelled()
    if test is None or classes is None or train.labels is None or test.labels is None or not len(test):
        missing = (
            "labels of two classes" if classes is None
            else "labels of training images" if train.labels is None
            else "images held out for the test"
        )  # fmt: skip
        raise TwofoldError(
            f"{read.name} has no {missing}: give DATA with one sub-folder for each class, or a test set"
            + (f" ({source.remark})" if source.remark else "")
        )
    if seen := trained_on(path, test):
        display.say(f"{seen:,} of the {len(test):,} test images were trained on, so that accuracies are too high")
    networks, preprocess = networks_of(path, config, read.train, layer, encoder)
    device = choose_device("auto")
    stores = (train.place(device), test.place(device))
    found: dict[str, tuple[Tensor, Tensor]] = {}
    for name, network in networks.items():
        with display.stage(f"features, {name}", len(train) + len(test)) as stage:
            found[name] = features_of(network, stores, preprocess, config, device, stage)
    found["raw pixels"] = (pixels(stores[0]), pixels(stores[1]))
    return Subject(read, classes, train.labels, test.labels, found, seen)


def features_of(
    network: nn.Module,
    stores: tuple[ImageStore, ImageStore],
    preprocess: Preprocess,
    config: Config,
    device: torch.device,
    progress: Callable[[int, int], None],
) -> tuple[Tensor, Tensor]:
    before, total = 0, sum(len(store) for store in stores)
    parts = []
    for store in stores:
        parts.append(
            extract(
                network.to(device),
                store,
                preprocess.to(device),
                device=device,
                autocast=autocast_of(config.precision, device),
                progress=lambda done, _, before=before: progress(before + done, total),  # type: ignore[misc]
            )
        )
        before += len(store)
    return parts[0], parts[1]


def networks_of(
    path: Path, config: Config, images: ImageStore, layer: str, encoder: nn.Module | None
) -> tuple[dict[str, nn.Module], Preprocess]:
    """The run's network as it is now and as it was before training, and what makes its input of images.

    `encoder`: the module of a run that trained one of the user's own.
    """
    if encoder is None and not has_name(config.encoder):
        raise TwofoldError(f"{path} trained your own {config.encoder}: call this from Python, with encoder=")
    finished = (path / "encoder.safetensors").exists()
    saved = None if finished and layer == "pre" else checkpoint.load_latest(path)
    if saved is None and (not finished or layer == "post"):
        raise TwofoldError(f"{path} has no checkpoint yet, and so nothing to measure: wait for its first, or resume it")
    if layer == "post":
        refuse_unregistered(config.method, path, RunFolder(path).config_values())
    begun = None if encoder is None else as_begun(path, copy.deepcopy(encoder))
    untrained = initial(config, images, layer, begun)
    if saved is None:
        trained = load_encoder(path, encoder=copy.deepcopy(encoder))
    else:
        trained = copy.deepcopy(untrained)
        for part, network in part_names(trained, layer).items():
            state = saved[1]["method"].items()
            network.load_state_dict({name.removeprefix(part): v for name, v in state if name.startswith(part)})
    if finished:
        preprocess = preprocess_of(load_encoder(path, encoder=copy.deepcopy(encoder)))
    else:
        mean, std = images.statistics()
        assert config.image_size is not None
        preprocess = Preprocess(config.image_size, images.images.shape[1], mean.tolist(), std.tolist())
    return {"trained": trained, "untrained": untrained}, preprocess


def preprocess_of(encoder: nn.Module) -> Preprocess:
    preprocess = encoder.preprocess
    assert isinstance(preprocess, Preprocess)
    return preprocess


def part_names(network: nn.Module, layer: str) -> dict[str, nn.Module]:
    """Prefixes of the weights in a checkpoint, and what they are of."""
    if layer == "pre":
        return {"encoder.": network}
    return {"encoder.": network[0], "projector.": network[1]}  # type: ignore[index]


def initial(config: Config, images: ImageStore, layer: str, encoder: nn.Module | None) -> nn.Module:
    """The network as it was before the first step: its weights are a function of the seed."""
    if layer == "post":
        # What is known of the training images' relations is for the objective alone.
        parameters = {name: Graph() if isinstance(v, Graph) else v for name, v in config.parameters.items()}
        method, *_ = build_method(dataclasses.replace(config, parameters=parameters), images, encoder)
        return nn.Sequential(method.encoder, method.projector).eval()
    if encoder is not None:
        return encoder.eval()
    assert config.image_size is not None
    with seeded(config.seed):
        return build_encoder(
            config.encoder, channels=images.images.shape[1], stem=config.stem, image_size=config.image_size
        ).eval()
