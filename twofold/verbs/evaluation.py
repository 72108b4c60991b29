"""The evaluation at the end of a run: accuracies of the encoder and of its baselines, and whether training helped."""

from functools import partial
from pathlib import Path

import numpy as np
from torch import nn

from twofold import dist
from twofold.display import Display
from twofold.evaluate.adaptation import Adaptation
from twofold.evaluate.gain import (
    BEFORE,
    TRAINED,
    UNTRAINED,
    WORDS,
    Gain,
    compare_accuracies,
    judge_by_labels,
    judge_by_views,
)
from twofold.evaluate.handmade import features_without_training
from twofold.evaluate.probes import Measured, labelled_splits, measure_accuracies
from twofold.runs.provenance import count_trained_on, read_trained_images
from twofold.train.trainer import Trainer
from twofold.verbs.run_adapter import WITH_ADAPTER, applied
from twofold.verbs.selection import Kept, judged_steps


def evaluate(trainer: Trainer, kept: Kept, adaptation: Adaptation | None, display: Display) -> list[Measured]:
    """Measure the linear and kNN accuracy of the trained encoder and of its baselines.

    `trained` is the encoder after the last step. If the run keeps one from an earlier step, it has a row of its own.
    With an adapter, the encoder that the run keeps also has a row with it.

    The baselines are the untrained encoder, the encoder before training if the run has initial weights, hand-made
    features and raw pixels. The result is empty if the data has no labels.
    """
    splits = labelled_splits(trainer.data)
    if splits is None:
        return []
    networks: dict[str, nn.Module | None] = {UNTRAINED: trainer.untrained, BEFORE: trainer.before}
    if 0 < kept.step < trainer.step:
        networks = {f"kept, step {kept.step}": kept.encoder, **networks}
    with display.stage("evaluating", 3) as stage:
        representations = {TRAINED: (trainer.features(splits.train), trainer.features(splits.test))}
        stage(1)
        for name, network in networks.items():
            if network is not None:
                pair = trainer.features(splits.train, network), trainer.features(splits.test, network)
                representations[name] = pair
        if adaptation is not None and adaptation.adapter is not None:
            start = UNTRAINED if trainer.before is None else BEFORE
            row = {trainer.step: TRAINED, 0: start}.get(kept.step, f"kept, step {kept.step}")
            representations[WITH_ADAPTER] = applied(adaptation.adapter, representations[row])
        representations |= features_without_training(splits.train, splits.test)
        stage(2)
        tasks = [
            partial(
                measure_accuracies, {name: pair}, splits.train_labels, splits.test_labels, classes=len(splits.classes)
            )
            for name, pair in representations.items()
        ]
        found = [each for measured in dist.spread(tasks) for each in measured]
        stage(3)
    return found


def judge_gain(trainer: Trainer, copies: float, kept: Kept, measured: list[Measured]) -> Gain:
    """Answer the question whether training helped: by labels if there are any, otherwise by views."""
    test, steps = trainer.data.test, judged_steps(trainer)
    if measured:
        # The answer is about the last step, with its adapter, and not about an earlier encoder that the run keeps.
        found = {each.row.name: each.correct for each in measured}
        with_adapter = kept.step == trainer.step and WITH_ADAPTER in found
        correct = {name: found[name] for name in (TRAINED, *WORDS) if name in found}
        if with_adapter:
            correct[TRAINED] = found[WITH_ADAPTER]
        labelled = 0 if test is None else test.labels_known
        return judge_by_labels(
            compare_accuracies(correct), steps=steps, test_images=labelled, copies=copies, with_adapter=with_adapter
        )
    scores = {name: score for name, score in kept.scores.items() if name in (TRAINED, *WORDS)}
    return judge_by_views(scores, steps=steps, test_images=0 if test is None else len(test), copies=copies)


def share_of_copies(run: Path, trainer: Trainer) -> float:
    """Return the share of copies: among the training images or, if it is larger, of these among the test images.

    The result is 0 if there were too many images to hash.
    """
    recorded = read_trained_images(run)
    if recorded is None or "pixels" not in recorded:
        return 0.0
    images, test = len(trainer.data.train), trainer.data.test
    among_training = 1 - len(np.unique(recorded["pixels"])) / images
    among_test = 0.0 if test is None else count_trained_on(run, test) / len(test)
    return max(among_training, among_test)
