"""The rows of the yardstick: each computes features of both folders of a split.

A row returns one or more named representations. K is the number of features.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

import numpy as np
import torch
from torch import Tensor

import twofold
from benchmarks.folders.datasets import Split
from benchmarks.folders.patches import PatchKMeans
from twofold.config.resolve import default_image_size
from twofold.data.load import load_data
from twofold.data.open import open_source
from twofold.data.store import ImageStore
from twofold.device import choose_device
from twofold.evaluate.adaptation import fit_adapter, mild_views
from twofold.evaluate.closed_form import within_whitening
from twofold.evaluate.encoder import Encoder
from twofold.evaluate.features import pixels
from twofold.evaluate.group_moments import GroupMoments
from twofold.evaluate.handmade import handmade_features
from twofold.evaluate.probes import few_label_accuracy, is_few, knn_accuracy, linear_accuracy
from twofold.methods import find
from twofold.methods.catalog.common import CONTINUED_METHOD, continued_recipe
from twofold.models import build_encoder
from twofold.models.adapter import Adapter
from twofold.models.encoders import EFFICIENTNET
from twofold.runs.initial_weights import load_into, read_weights
from twofold.runs.own_input import EFFICIENTNET_LITE0
from twofold.runs.preprocess import Preprocess
from twofold.runs.weights import ENCODER_FILE, in_words, load_encoder, read_adapter
from twofold.verbs.probing import initial, made_weights

NEIGHBOURS = 5
LABELS_PER_CLASS = 10
VIEWS = 5
AS_IS = "EfficientNet-Lite0"
SHRINKAGES = (1.0, 0.97, 0.95, 0.9, 0.8, 0.7, 0.5, 0.3, 0.1)
Representations = dict[str, tuple[Tensor, Tensor, float]]  # name → features to fit and to score [n, K], seconds


@dataclass(frozen=True)
class Settings:
    """What a row may depend on apart from the images."""

    work: Path
    minutes: float
    size: int  # of images for pretrained networks
    overrides: dict[str, object]
    methods: tuple[str, ...] = (CONTINUED_METHOD,)  # of continued pretraining


def store(folder: Path, size: int | None = None, channels: int | None = None) -> ImageStore:
    """The images of a folder and their labels. Without a size, that which Twofold would choose."""
    source = open_source(folder)
    size = size or default_image_size(source.train.side)
    return load_data(source, image_size=size, channels=channels or source.train.channels, test_fraction=0.0).train


def labels_of(folder: Path) -> np.ndarray:
    labels = open_source(folder).train.labels
    assert labels is not None
    return labels


def raw_pixels(split: Split, _settings: Settings) -> Representations:
    start = time.perf_counter()
    features = [pixels(store(folder)) for folder in (split.fit, split.score)]
    return {"raw pixels": (*features, time.perf_counter() - start)}


def handmade(split: Split, _settings: Settings) -> Representations:
    start = time.perf_counter()
    features = [handmade_features(store(folder)) for folder in (split.fit, split.score)]
    return {"HOG + colour": (*features, time.perf_counter() - start)}


def patch_k_means(split: Split, _settings: Settings) -> Representations:
    start = time.perf_counter()
    stores = [
        store(folder, min(default_image_size(open_source(folder).train.side), 64))
        for folder in (split.fit, split.score)
    ]
    learnt = PatchKMeans(stores[0], seed=split.seed)
    features = [learnt(images.images) for images in stores]
    return {"patch k-means": (*features, time.perf_counter() - start)}


def scratch(split: Split, settings: Settings) -> Representations:
    """The encoder that `pretrain` makes, with and without the adapter of the run, and before its first step.

    With `epochs`, the run has so many of them instead of `--minutes`: for machines whose time is shared.
    """
    start = time.perf_counter()
    out = settings.work / "runs" / f"{split.name}-{split.fit.parent.name}-{time.time_ns()}"
    length = {} if "epochs" in settings.overrides else {"minutes": settings.minutes}
    run = twofold.pretrain(
        split.fit, out=out, test_fraction=0.0, seed=split.seed, map_points=0, **length, **settings.overrides
    )
    seconds = time.perf_counter() - start
    plain, size = load_encoder(run, adapter=False), run.config.image_size
    stores = [store(folder, size, plain.preprocess.channels) for folder in (split.fit, split.score)]
    untrained = initial(run.config, stores[0], "pre", None, made_weights(plain))
    encoders = {
        name: Encoder.on_device(network, plain.preprocess, torch.device("cpu"))
        for name, network in {"untrained": untrained, "trained from scratch": plain}.items()
    }
    found: Representations = {
        name: (*map(encoder.features, stores), seconds if encoder.network is plain else 0.0)
        for name, encoder in encoders.items()
    }
    adapter = (read_adapter(run.path / ENCODER_FILE, plain.state_dict()) or [None])[0]
    if adapter is not None:
        fit, score, _ = found["trained, without adapter"] = found["trained from scratch"]
        found["trained from scratch"] = (adapter(fit), adapter(score), seconds)
    print(split.name, split.seed, run.config.method, size, run.metrics[-1]["step"], "steps", flush=True)
    return found


def pretrained(split: Split, settings: Settings) -> Representations:
    """EfficientNet-Lite0 with its ImageNet weights, as it is."""
    return {AS_IS: timed(start_encoder(settings.size), stores_of(split, settings))}


def adapted(split: Split, settings: Settings) -> Representations:
    """EfficientNet-Lite0 as it is, after closed-form adaptation, with the mean of five views, and with both."""
    encoder, stores = start_encoder(settings.size), stores_of(split, settings)
    adaptation = fit_adapter(encoder, stores[0])
    made = in_words(adaptation.variant, adaptation.settings)
    found: Representations = {}
    for views in (1, VIEWS):
        name = AS_IS + (f", {views} views" if views > 1 else "")
        *features, seconds = found[name] = timed(encoder, stores, views)
        both = [each if adaptation.adapter is None else adaptation.adapter.to(each.device)(each) for each in features]
        found[f"{name}, adapter"] = (*both, seconds + adaptation.seconds)
    scores = [None if score is None else round(score.mean, 4) for score in (adaptation.before, adaptation.after)]
    print(split.name, split.seed, "adapter:", made, "retrieval before and after:", scores, flush=True)
    return found


def continued(split: Split, settings: Settings) -> Representations:
    """EfficientNet-Lite0 after the default training of each method, with the adapter of the run, and with views."""
    stores, found = stores_of(split, settings), {}
    for method in settings.methods:
        start = time.perf_counter()
        # The epochs of the recipe are stated, because a run without them times a few steps first.
        keys = {"epochs": continued_recipe(find(method))["epochs"]} | settings.overrides
        run = twofold.pretrain(
            split.fit,
            method=method,
            init="efficientnet-lite0",
            out=settings.work / "runs" / f"{split.name}-{split.fit.parent.name}-{method}-{time.time_ns()}",
            image_size=settings.size,
            test_fraction=0.0,
            seed=split.seed,
            map_points=0,
            **keys,
        )
        cost = time.perf_counter() - start
        for name, adapter, views in (
            ("", False, 1),
            (", adapter", True, 1),
            (f", adapter, {VIEWS} views", True, VIEWS),
        ):
            network = load_encoder(run, adapter=adapter)
            encoder = Encoder.on_device(network, network.preprocess, choose_device("auto"), "float32")
            *features, seconds = timed(encoder, stores, views)
            found[f"continued, {method}{name}"] = (*features, cost + seconds)
    return found


def strengths(split: Split, settings: Settings) -> Representations:
    """EfficientNet-Lite0 after whitening within images with several shrinkages."""
    encoder, stores = start_encoder(settings.size), stores_of(split, settings)
    start = time.perf_counter()
    moments, plain = GroupMoments(), []
    for _, features in encoder.view_blocks(stores[0], mild_views(encoder)):
        moments.add(features)
        plain.append(features[0])
    both = torch.cat(plain), encoder.features(stores[1], batch_size=64)
    seconds = time.perf_counter() - start
    found: Representations = {AS_IS: (*both, seconds)}
    whitening = within_whitening(moments.within)
    for shrinkage in SHRINKAGES:
        adapter = Adapter(moments.mean, whitening(shrinkage)).to(encoder.device)
        found[f"shrinkage {shrinkage:g}"] = (adapter(both[0]), adapter(both[1]), seconds)
    return found


def stores_of(split: Split, settings: Settings) -> list[ImageStore]:
    return [store(folder, settings.size, 3) for folder in (split.fit, split.score)]


def timed(encoder: Encoder, stores: list[ImageStore], views: int = 1) -> tuple[Tensor, Tensor, float]:
    """Features of both folders, and the seconds that they took."""
    start = time.perf_counter()
    fit, score = (replace(encoder, views=views).features(images, batch_size=64) for images in stores)
    return fit, score, time.perf_counter() - start


def start_encoder(size: int) -> Encoder:
    """EfficientNet-Lite0 with its ImageNet weights and its own normalisation."""
    network = build_encoder(EFFICIENTNET, channels=3, stem="large", image_size=size)
    load_into(network, read_weights(EFFICIENTNET, channels=3, image_size=size)[1], EFFICIENTNET)
    preprocess = Preprocess(size, 3, EFFICIENTNET_LITE0.mean, EFFICIENTNET_LITE0.std)
    return Encoder.on_device(network.eval(), preprocess, choose_device("auto"))


ROWS: dict[str, Callable[[Split, Settings], Representations]] = {
    "raw": raw_pixels,
    "handmade": handmade,
    "patches": patch_k_means,
    "scratch": scratch,
    "pretrained": pretrained,
    "adapted": adapted,
    "continued": continued,
    "strengths": strengths,
}


def measure(
    split: Split, representations: Representations, *, with_few_labels: bool = True
) -> dict[str, dict[str, float]]:
    """Accuracies in per cent of each representation, and the seconds that it took."""
    labels = [torch.from_numpy(labels_of(folder)) for folder in (split.fit, split.score)]
    classes = int(labels[0].max()) + 1
    found = {}
    for name, (fit, score, seconds) in representations.items():
        data = (fit.cpu(), labels[0], score.cpu(), labels[1])
        is_possible = with_few_labels and is_few(labels[0], LABELS_PER_CLASS)
        few = few_label_accuracy(*data, classes=classes)[0] if is_possible else float("nan")
        found[name] = {
            "linear": 100 * linear_accuracy(*data, classes=classes),
            "few": 100 * few,
            "knn": 100 * knn_accuracy(*data, k=NEIGHBOURS),
            "seconds": seconds,
        }
    return found


def summary(values: list[float]) -> str:
    """Mean ± half of the range."""
    spread = f" ± {(max(values) - min(values)) / 2:.1f}" if len(values) > 1 else ""
    return f"{mean(values):.1f}{spread}"
