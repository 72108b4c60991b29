"""What `probe` and `knn` share: the features of the trained encoder and of its baselines."""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from twofold.config import Config, Graph
from twofold.data.load import read_data
from twofold.data.open import open_source
from twofold.data.source import Data, Source
from twofold.data.store import ImageStore
from twofold.device import choose_device
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.evaluate.encoder import Encoder, refuse_other, views_in_words
from twofold.evaluate.features import check_views
from twofold.evaluate.handmade import features_without_training
from twofold.evaluate.opened import Opened, What, folder_of, name_of_encoder, open_any
from twofold.evaluate.probes import LabelledSplits, labelled_splits
from twofold.methods import refuse_unregistered
from twofold.models import build_encoder, has_name
from twofold.models.adapter import AdaptedEncoder, Adapter
from twofold.models.encoders import MADE
from twofold.randomness import seeded
from twofold.runs import checkpoint
from twofold.runs.folder import RunFolder
from twofold.runs.initial_weights import load_made_weights, restore_untrained
from twofold.runs.preprocess import Preprocess, preprocess_of
from twofold.runs.provenance import count_trained_on, has_same_images, open_run_source
from twofold.runs.run import Run, config_of, is_encoder_folder
from twofold.runs.weights import encoder_file, load_encoder, read_adapter
from twofold.train.setup import build_method, normalisation

ADAPTED = "trained + adapter"  # the name of the representation that `adapt` improves


@dataclasses.dataclass(frozen=True)
class ProbeData:
    """The labelled images and their representations. Rows of all representations are in the same order."""

    name: str  # the name of the data
    splits: LabelledSplits
    representations: dict[str, tuple[Tensor, Tensor]]  # name → features of training and test images
    trained_on: int  # the number of test images that the run was trained on


def measure_all(
    probed: ProbeData, title: str, measure: Callable[[Tensor, Tensor], dict[str, Any]], display: Display
) -> list[dict[str, Any]]:
    """Call `measure(train, test)` with the features of each representation, and return a row for each."""
    rows = []
    with display.stage(title, len(probed.representations)) as stage:
        for done, (name, (train, test)) in enumerate(probed.representations.items(), start=1):
            rows.append({"name": name} | measure(train, test))
            stage(done)
    return rows


def with_description(run: What, probed: ProbeData, layer: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the rows together with a description of the run and the images."""
    return {
        "run": name_of_encoder(run),
        "data": probed.name,
        "layer": layer,
        "train_images": len(probed.splits.train),
        "test_images": len(probed.splits.test),
        "test_images_trained_on": probed.trained_on,
        "classes": list(probed.splits.classes),
        "rows": rows,
    }


def load_probe_data(
    run: What,
    data: Any,
    layer: str,
    encoder: str | nn.Module | None,
    display: Display,
    *,
    image_size: int | None = None,
    adapter: bool = True,
    views: int = 1,
) -> ProbeData:
    """Read the labelled images and compute their representations.

    `encoder` is a module of the same class, if the run trained the user's own module, or the architecture of a file.
    """
    if layer not in ("pre", "post"):
        raise TwofoldError(
            f"unknown layer '{layer}': give pre (the encoder's features) or post (the projector's output)"
        )
    check_views(views)
    path = folder_of(run)
    if path is None:
        refuse_other(run)
        read, measured = open_measured_encoder(run, data, layer, encoder, display, image_size, adapter=adapter)
    else:
        if isinstance(encoder, str) or image_size is not None:
            raise TwofoldError(f"{path} is a run, which defines its encoder: leave out the encoder and the image size")
        read, measured = open_measured_run(path, data, layer, encoder, display, adapter=adapter)
    splits = labelled_splits(read)
    assert splits is not None  # `refuse_unlabelled` has checked it
    if views > 1:
        display.say(views_in_words(views))
    reused = 0 if path is None else count_trained_on(path, splits.test)
    if reused:
        display.say(
            f"{reused:,} of the {len(splits.test):,} test images were used for training, so the accuracies are too high"
        )
    device, images = choose_device("auto"), len(splits.train) + len(splits.test)
    train, test = splits.train.place(device), splits.test.place(device)
    found: dict[str, tuple[Tensor, Tensor]] = {}
    for name, network in measured.networks.items():
        on_device = Encoder.on_device(network, measured.preprocess, device, measured.precision)
        opened = dataclasses.replace(on_device, views=views)
        with display.stage(f"computing features ({name})", images) as stage:
            features = features_of_both(opened, train, test, stage)
        if name == "trained" and (adapted := measured.adapter) is not None:
            found[ADAPTED] = adapted.to(device)(features[0].to(device)), adapted(features[1].to(device))
        found[name] = features
    with display.stage("computing features without training", 0):
        found |= features_without_training(train, test)
    return ProbeData(read.name, splits, found, reused)


@dataclasses.dataclass(frozen=True, eq=False)
class MeasuredNetworks:
    """The networks that are compared, by name, and what they need."""

    networks: dict[str, nn.Module]  # trained and, if there is one, untrained
    preprocess: Preprocess
    precision: str
    adapter: Adapter | None  # of the trained network


def open_measured_run(
    path: Path, data: Any, layer: str, encoder: nn.Module | None, display: Display, *, adapter: bool
) -> tuple[Data, MeasuredNetworks]:
    """Return the labelled images and the networks of a run, or of a folder that holds an encoder."""
    config = config_of(path)
    finished = (path / "encoder.safetensors").exists()
    source = open_run_source(path, config, display.say, data)
    read = read_data(config, source, display)
    if data is not None and not finished and not has_same_images(path, read):
        raise TwofoldError(
            f"{path} is not finished: leave out DATA to measure it on its own images, or resume it first"
        )
    refuse_unlabelled(read, source)
    networks, preprocess = networks_of(path, config, read.train, layer, encoder)
    uses_adapter = adapter and layer == "pre" and finished
    adapted = read_adapter(encoder_file(path), networks["trained"].state_dict()) if uses_adapter else None
    if finished and layer == "pre" and (kept := kept_in_words(Run(path).results or {})):
        display.say(f"kept     {kept}")
    return read, MeasuredNetworks(networks, preprocess, config.precision, None if adapted is None else adapted[0])


def open_measured_encoder(
    what: What,
    data: Any,
    layer: str,
    module: str | nn.Module | None,
    display: Display,
    image_size: int | None,
    *,
    adapter: bool,
) -> tuple[Data, MeasuredNetworks]:
    """Return the labelled images, and the networks of an encoder that is not in a run folder."""
    if layer == "post":
        raise TwofoldError(f"{name_of_encoder(what)} is an encoder without a projector: leave out --layer post")
    opened = open_any(what, data, display, module=module, image_size=image_size, adapter=adapter)
    if data is None:
        raise TwofoldError(f"{opened.name} needs labelled images: give DATA")
    source = open_source(data, decode=opened.preprocess.decode)
    read = read_data(opened.config, source, display)
    refuse_unlabelled(read, source)
    network, adapted = separate_adapter(opened.encoder.network)
    networks = {"trained": network} | untrained_network(opened, module, read.train)
    return read, MeasuredNetworks(networks, opened.preprocess, opened.config.precision, adapted)


def separate_adapter(network: nn.Module) -> tuple[nn.Module, Adapter | None]:
    """Return the encoder and its adapter; None if it has none."""
    return (network.encoder, network.adapter) if isinstance(network, AdaptedEncoder) else (network, None)


def untrained_network(opened: Opened, module: str | nn.Module | None, images: ImageStore) -> dict[str, nn.Module]:
    """Return `untrained`, an encoder of the same architecture with new weights, if it can be built from its name."""
    if not has_name(opened.config.encoder) or isinstance(module, nn.Module):
        return {}
    return {"untrained": initial(opened.config, images, "pre", None)}


def refuse_unlabelled(read: Data, source: Source) -> None:
    """Raise an error if the images cannot be used to train and to test a classifier."""
    if labelled_splits(read) is None:
        raise TwofoldError(
            f"{read.name} has no {missing_of(read)}: pass labelled images as DATA, such as a folder with one "
            "sub-folder per class" + (f" ({source.remark})" if source.remark else "")
        )


def kept_in_words(results: dict[str, Any]) -> str:
    """Return which encoder a run kept if it is not that of the last step, otherwise ""."""
    sentence = (results.get("kept") or {}).get("sentence") or ""
    return "" if sentence.startswith("the last step") else sentence


def missing_of(data: Data) -> str:
    """Return what the data lacks if `labelled_splits` returns None for it."""
    if data.classes is None:
        return "labels of at least two classes"
    return "labels for the training images" if data.train.labels is None else "labelled test images"


def features_of_both(
    encoder: Encoder, train: ImageStore, test: ImageStore, progress: Callable[[int, int], None]
) -> tuple[Tensor, Tensor]:
    """Return the features of training and test images, with one progress bar for both."""
    total = len(train) + len(test)
    return (
        encoder.features(train, progress=lambda done, _: progress(done, total)),
        encoder.features(test, progress=lambda done, _: progress(len(train) + done, total)),
    )


def networks_of(
    path: Path, config: Config, images: ImageStore, layer: str, encoder: nn.Module | None
) -> tuple[dict[str, nn.Module], Preprocess]:
    """Return the trained and the untrained network of a run, and the preprocessing of its images.

    `encoder` is a module of the same class, if the run trained the user's own module.
    """
    if is_encoder_folder(path):
        return networks_of_folder(path, config, images, layer, encoder)
    if encoder is None and not has_name(config.encoder):
        raise TwofoldError(
            f"{path} trained your own {config.encoder}: use the Python function and pass the module as encoder="
        )
    finished = (path / "encoder.safetensors").exists()
    saved = None if finished and layer == "pre" else checkpoint.load_latest(path)
    if saved is None and (not finished or layer == "post"):
        raise TwofoldError(f"{path} has no checkpoint yet: wait for the first one, or resume the run")
    if layer == "post":
        refuse_unregistered(config.method, path, RunFolder(path).config_record()["values"])
    started = None if encoder is None else restore_untrained(path, copy.deepcopy(encoder))
    made = load_made_weights(path) if encoder is None else None
    untrained = initial(config, images, layer, started, made)
    loaded = load_encoder(path, encoder=copy.deepcopy(encoder), adapter=False) if finished else None
    if saved is None:
        assert loaded is not None  # otherwise the error above was raised
        trained = loaded
    else:
        trained = copy.deepcopy(untrained)
        for part, network in part_names(trained, layer).items():
            state = saved[1]["method"].items()
            network.load_state_dict({name.removeprefix(part): v for name, v in state if name.startswith(part)})
    if loaded is not None:
        preprocess = preprocess_of(loaded)
    else:
        mean, std = normalisation(config, images)
        assert config.image_size is not None
        preprocess = Preprocess(config.image_size, images.images.shape[1], mean.tolist(), std.tolist())
    return {"trained": trained, "untrained": untrained}, preprocess


def networks_of_folder(
    path: Path, config: Config, images: ImageStore, layer: str, encoder: nn.Module | None
) -> tuple[dict[str, nn.Module], Preprocess]:
    """Return the same for a folder that holds an encoder but no run. Modules have no untrained counterpart."""
    if layer == "post":
        raise TwofoldError(f"{path} has an encoder but no projector: leave out --layer post")
    trained = load_encoder(path, encoder=copy.deepcopy(encoder), adapter=False)
    networks = {"trained": trained}
    if encoder is None and has_name(config.encoder):
        networks["untrained"] = initial(config, images, layer, None, made_weights(trained))
    return networks, preprocess_of(trained)


def part_names(network: nn.Module, layer: str) -> dict[str, nn.Module]:
    """Return the modules that a checkpoint has weights of, by the prefix of their names."""
    if layer == "pre":
        return {"encoder.": network}
    return {"encoder.": network[0], "projector.": network[1]}  # type: ignore[index]


def made_weights(network: nn.Module) -> dict[str, Tensor]:
    """Return the weights that were made from the images of the run, which training does not change."""
    return {name: value for name, value in network.state_dict().items() if name.startswith(MADE)}


def initial(
    config: Config,
    images: ImageStore,
    layer: str,
    encoder: nn.Module | None,
    made: Mapping[str, Tensor] | None = None,
) -> nn.Module:
    """Return the network as it was before the first step.

    Its weights depend only on the seed and on `made`, those that were made from the images of the run.
    """
    if layer == "post":
        # Only the objective uses the graph, and its file may not exist for these images.
        parameters = {name: Graph() if isinstance(v, Graph) else v for name, v in config.parameters.items()}
        method, *_ = build_method(dataclasses.replace(config, parameters=parameters), images, encoder, made=made)
        return nn.Sequential(method.encoder, method.projector).eval()
    if encoder is not None:
        return encoder.eval()
    assert config.image_size is not None
    with seeded(config.seed):
        network = build_encoder(
            config.encoder, channels=images.images.shape[1], stem=config.stem, image_size=config.image_size
        )
    if made is not None:
        network.load_state_dict(made, strict=False)
    return network.eval()
