"""`twofold probe` and `twofold.probe`: the accuracy of a linear classifier on frozen features."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from twofold.display import Display
from twofold.errors import TwofoldError, nearest
from twofold.evaluate.opened import What
from twofold.evaluate.probes import LabelledSplits, few_label_accuracy, is_few, linear_scores
from twofold.evaluate.protocols import SOLVERS
from twofold.keys import Count, checked
from twofold.text import plural
from twofold.verbs.classifiers import refuse_unwritable_classifier, save_probe_classifier
from twofold.verbs.probing import load_probe_data, measure_all, with_description

SUBSETS = 5  # random subsets of labelled images over which the accuracy with few labels is averaged


def probe(
    run: What,
    data: Any = None,
    *,
    solver: str = "lbfgs",
    labels_per_class: int | Iterable[int] = (),
    layer: str = "pre",
    encoder: str | nn.Module | None = None,
    image_size: int | None = None,
    adapter: bool = True,
    views: int = 1,
    classifier: str | Path | None = None,
    display: Display | None = None,
) -> dict[str, Any]:
    """Train a linear classifier on frozen features and compare it with features without training.

    The baselines are an untrained encoder, hand-made features (HOG + colour) and raw pixels. Hand-made features are
    left out for more than 20,000 images.

    Parameters
    ----------
    run : str, Path, Run or nn.Module
        The encoder: a run, a folder that `adapt` wrote, a .safetensors or .onnx file, `efficientnet-lite0` or
        `timm:NAME` with pretrained weights, or a module.
    data : optional
        Labelled images, in any form that `pretrain` accepts. By default, the run's own images. Other encoders need
        them; if there is no test set, Twofold holds out a fifth of each class.
    solver : {"lbfgs", "sgd", "adam"}
        `lbfgs` converges fully and chooses the weight penalty on held-out training images. `sgd` follows solo-learn's
        protocol, and `adam` that of FroSSL on ImageNet (100 epochs each).
    labels_per_class : int or iterable of int
        Also train with only this many labels of each class, on 5 random subsets. Twofold skips a number
        if no class has more labels than that, because the result would be the same as with all labels.
    layer : {"pre", "post"}
        Measure the encoder's features (`pre`) or the projector's output (`post`).
    encoder : str or nn.Module, optional
        For a .safetensors file that Twofold did not write: the name of its architecture. For a run that trained your
        own module: a module of the same class.
    image_size : int, optional
        The size of the images, for an encoder that does not state its own, and for `efficientnet-lite0` or `timm:NAME`.
    adapter : bool
        Apply the adapter that `adapt` wrote, if there is one. The row "trained + adapter" then comes first.
    views : int
        1, or 5 to average the features of each image and of four crops of it. This takes five times as long.
    classifier : str or Path, optional
        Write the trained classifier to this .safetensors file, together with the encoder. `twofold.predict` and
        `twofold.export` read it.
    display : Display, optional
        Where progress is printed. By default nothing is printed.

    Returns
    -------
    dict
        `rows` has a dict for each of trained + adapter (if there is one), trained, untrained, HOG + colour and raw
        pixels: `name`, `top1`, `top5`, `per_class`, `confusion` and `few_labels` (mean and standard deviation for each
        number of labels). The other entries describe the images and the settings.

    Examples
    --------
    >>> found = twofold.probe("runs/frossl-photos-1", labels_per_class=[1, 10])  # doctest: +SKIP
    >>> {row["name"]: row["top1"] for row in found["rows"]}  # doctest: +SKIP
    """
    if solver not in SOLVERS:
        raise TwofoldError(f"unknown solver '{solver}'{nearest(solver, list(SOLVERS))}")
    asked = _checked_counts(labels_per_class)
    display = display or Display(quiet=True)
    if classifier is not None:
        refuse_unwritable_classifier(run, classifier, layer)
    probed = load_probe_data(run, data, layer, encoder, display, image_size=image_size, adapter=adapter, views=views)
    counts = _few_counts(asked, probed.splits.train_labels, display)

    def measure(train: Tensor, test: Tensor) -> dict[str, Any]:
        return _accuracies(train, test, probed.splits, solver, counts)

    measured = measure_all(probed, "training classifiers", measure, display)
    if classifier is not None:
        save_probe_classifier(Path(classifier), run, probed, solver, views=views, accuracy=measured[0]["top1"])
        display.say(f"classifier {classifier}")
    return {"solver": solver} | with_description(run, probed, layer, measured)


def _checked_counts(labels_per_class: int | Iterable[int]) -> list[int]:
    """Return the numbers of labels as a list of positive integers."""
    one = isinstance(labels_per_class, str) or not isinstance(labels_per_class, Iterable)
    given: Iterable[Any] = [labels_per_class] if one else labels_per_class  # type: ignore[assignment]
    return [checked("labels_per_class", count, Count) for count in given]


def _few_counts(asked: list[int], labels: Tensor, display: Display) -> list[int]:
    """Return the numbers of labels below the size of the largest class, and say which others are skipped."""
    counts = [count for count in asked if is_few(labels, count)]
    for count in sorted(set(asked) - set(counts)):
        display.say(
            f"skipping {plural(count, 'label')} per class: no class has more, so the result would be that of all labels"
        )
    return counts


def _accuracies(train: Tensor, test: Tensor, splits: LabelledSplits, solver: str, counts: list[int]) -> dict[str, Any]:
    """Return the accuracies of a linear classifier with all labels and with few of them.

    `train` and `test` are features `[N, K]`. `counts` are the numbers of labels per class.
    """
    rows = (train, splits.train_labels, test, splits.test_labels)
    classes = len(splits.classes)
    found = dataclasses.asdict(linear_scores(*rows, classes=classes, solver=solver))
    few = []
    for count in counts:
        mean, sd = few_label_accuracy(*rows, classes=classes, labels_per_class=count, subsets=SUBSETS)
        few.append({"labels_per_class": count, "mean": mean, "sd": sd, "subsets": SUBSETS})
    return found | {"few_labels": few}
