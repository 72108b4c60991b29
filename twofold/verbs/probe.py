"""`twofold probe` and `twofold.probe`: a linear classifier on frozen features."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from twofold.display import Display
from twofold.errors import TwofoldError, nearest
from twofold.evaluate.linear import SOLVERS
from twofold.evaluate.probes import few_label_accuracy, is_few, linear_scores
from twofold.keys import Count, checked
from twofold.runs.run import Run
from twofold.verbs.probing import load_probe_data, measure_all, with_description

SUBSETS = 5  # random sets of labelled images over which few labels are averaged


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
    probed = load_probe_data(run, data, layer, encoder, display)
    splits, classes = probed.splits, len(probed.splits.classes)
    counts = [count for count in asked if is_few(splits.train_labels, count)]
    for count in sorted(set(asked) - set(counts)):
        display.say(f"{count:,} per class are left out: no class has more labels, so the result is that of all of them")

    def measure(train: Tensor, test: Tensor) -> dict[str, Any]:
        rows = (train, splits.train_labels, test, splits.test_labels)
        found = dataclasses.asdict(linear_scores(*rows, classes=classes, solver=solver))
        few = []
        for count in counts:
            mean, sd = few_label_accuracy(*rows, classes=classes, labels_per_class=count, subsets=SUBSETS)
            few.append({"labels_per_class": count, "mean": mean, "sd": sd, "subsets": SUBSETS})
        return found | {"few_labels": few}

    measured = measure_all(probed, "fitting probes", measure, display)
    return {"solver": solver} | with_description(run, probed, layer, measured)
