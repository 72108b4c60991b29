"""How well a run's encoder tells classes apart: what `twofold probe` and `twofold knn` measure.

Every number stands beside the same number for raw pixels and for an untrained encoder of the same shape.
"""

import copy
import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from twofold.api import Run, read_data
from twofold.config import Config, Graph
from twofold.data.seen import own_source, same_images, trained_on
from twofold.data.sources import Data
from twofold.data.store import ImageStore
from twofold.errors import TwofoldError, nearest
from twofold.evaluate.features import extract, pixels
from twofold.evaluate.linear import SOLVERS
from twofold.evaluate.probes import Scores, few_label_accuracy, is_few, knn_ranked, linear_scores, scores
from twofold.keys import Count, Positive, checked
from twofold.methods import refuse_unregistered
from twofold.models import build_encoder, has_name
from twofold.train import checkpoint
from twofold.train.build import build_method
from twofold.train.device import choose_device
from twofold.train.guards import seeded
from twofold.train.initial import as_begun
from twofold.train.precision import autocast_of
from twofold.train.progress import Display
from twofold.train.record import RunFolder
from twofold.train.weights import Preprocess, load_encoder

SUBSETS = 5  # random sets of labelled images over which few labels are averaged


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is measured: representations of the same labelled images, rows aligned."""

    data: Data
    classes: tuple[str, ...]
    train_labels: Tensor
    test_labels: Tensor
    representations: dict[str, tuple[Tensor, Tensor]]  # name → features of training and test images
    trained_on: int  # of the test images


def probe(
    run: str | Path | Run,
    data: Any = None,
    *,
    solver: str = "lbfgs",
    labels_per_class: int | Iterable[int] = (),
    layer: str = "pre",
    encoder: nn.Module | None = None,
    display: Display | None = None,
) -> dict[str, Any]:
    """A linear classifier on frozen features: all labels, and so many of each class, mean and deviation over 5 draws.
    A number of labels that no class has more of is left out: it would be the result of all labels.

    `data` is what pretrain takes, by default the run's own. `solver`: lbfgs, with the penalty chosen on held-out
    training images, or sgd, the papers' protocol. `layer`: pre, the encoder's features, or post, the projector's.
    """
    if solver not in SOLVERS:
        raise TwofoldError(f"unknown solver '{solver}'{nearest(solver, list(SOLVERS))}")
    one = isinstance(labels_per_class, str) or not isinstance(labels_per_class, Iterable)
    given: Iterable[Any] = [labels_per_class] if one else labels_per_class  # type: ignore[assignment]
    asked = [checked("labels_per_class", count, Count) for count in given]
    display = display or Display(quiet=True)
    subject = look_at(run, data, layer, encoder, display)
    classes = len(subject.classes)
    counts = [count for count in asked if is_few(subject.train_labels, count)]
    for count in sorted(set(asked) - set(counts)):
        display.say(f"{count:,} per class are left out: no class has more labels, so the result is that of all of them")

    def measure(train: Tensor, test: Tensor) -> dict[str, Any]:
        rows = (train, subject.train_labels, test, subject.test_labels)
        found = dataclasses.asdict(linear_scores(*rows, classes=classes, solver=solver))
        few = []
        for count in counts:
            mean, sd = few_label_accuracy(*rows, classes=classes, labels_per_class=count, subsets=SUBSETS)
            few.append({"labels_per_class": count, "mean": mean, "sd": sd, "subsets": SUBSETS})
        return found | {"few_labels": few}

    return {"solver": solver} | described(run, subject, layer, measured(subject, "fitting probes", measure, display))


def knn(
    run: str | Path | Run,
    data: Any = None,
    *,
    k: int = 20,
    temperature: float = 0.07,
    layer: str = "pre",
    encoder: nn.Module | None = None,
    display: Display | None = None,
) -> dict[str, Any]:
    """The vote of the k nearest training images, by cosine similarity s and with weight exp(s/temperature)."""
    k, temperature = checked("k", k, Count), checked("temperature", temperature, Positive)
    display = display or Display(quiet=True)
    subject = look_at(run, data, layer, encoder, display)

    def measure(train: Tensor, test: Tensor) -> dict[str, Any]:
        named = knn_ranked(train, subject.train_labels, test, k=k, temperature=temperature)
        found: Scores = scores(named, subject.test_labels, classes=len(subject.classes))
        return dataclasses.asdict(found)

    rows = measured(subject, "finding neighbours", measure, display)
    return {"k": k, "temperature": temperature} | described(run, subject, layer, rows)


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


def look_at(run: str | Path | Run, data: Any, layer: str, encoder: nn.Module | None, display: Display) -> Subject:
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
                autocast=autocast_of(config, device),
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
