"""Choose which encoder of a run is kept (`select=best`), and score encoders by views of held-out images.

The candidates are the encoder before training, those after a few earlier steps, and the last one. No labels are used.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from twofold import dist
from twofold.data.augment import Augmenter
from twofold.display import Display
from twofold.evaluate.features import PIXEL_SIDE, ImageRows, Subset
from twofold.evaluate.gain import BEFORE, HANDMADE, LEAST_STEPS, MUCH_LOWER, PIXELS, TRAINED, UNTRAINED, obstacle
from twofold.evaluate.handmade import hog_and_colour
from twofold.evaluate.view_retrieval import Estimate, ViewScore, mild, score_views
from twofold.runs.folder import RunFolder
from twofold.runs.snapshots import load_snapshots
from twofold.train.trainer import Trainer

MOST_IMAGES = 500  # held-out images that are scored; more would take long and change little
STANDARD_ERRORS = 2.5  # an earlier encoder must be better by this many; one of four is the best, so 1.96 is too few


@dataclass(frozen=True, eq=False)
class Kept:
    """The encoder that a run keeps, and the scores by which it was chosen."""

    encoder: nn.Module
    step: int  # the step after which it was taken; 0 is before training
    sentence: str = ""  # why, in words; "" if nothing was to be chosen
    scores: Mapping[str, ViewScore] = field(default_factory=dict)  # by representation or, for earlier steps, `step N`

    def record(self) -> dict[str, Any]:
        """Return the choice as a dictionary for JSON."""
        estimates = {name: Estimate.of(score.retrieval) for name, score in self.scores.items()}
        scored = [
            {
                "name": name,
                "view_retrieval": estimate.mean,
                "standard_error": estimate.standard_error,
                "effective_rank": self.scores[name].rank,
            }
            for name, estimate in estimates.items()
        ]
        return {"step": self.step, "sentence": self.sentence, "scores": scored}


def choose(trainer: Trainer, folder: RunFolder, copies: float, display: Display) -> Kept:
    """Score the encoders of a run if that is asked for, and return the one to keep.

    `copies` is the share of copies among the images, see `gain.obstacle`. Scores are computed with `select=best`, and
    for runs without labels, whose answer to the question whether training helped rests on them.
    """
    last, step, test = trainer.method.encoder, trainer.step, trainer.data.test
    is_selecting = trainer.config.select == "best"
    if not is_selecting and (test is None or test.labels_known):
        return Kept(last, step)
    problem = obstacle(judged_steps(trainer), 0 if test is None else len(test), copies)
    if problem:
        return Kept(last, step, f"the last step; no earlier encoder was scored: {problem}" if is_selecting else "")
    encoders = {TRAINED: last, UNTRAINED: trainer.untrained}
    if trainer.before is not None:
        encoders[BEFORE] = trainer.before
    steps = {TRAINED: step, (UNTRAINED if trainer.before is None else BEFORE): 0}
    if is_selecting:
        for earlier, weights in load_snapshots(folder.path, trainer.total_steps, display.say).items():
            encoders[f"step {earlier}"], steps[f"step {earlier}"] = loaded(last, weights), earlier
    with display.stage("comparing encoders", len(encoders)) as stage:
        scores = {}
        for done, (name, encoder) in enumerate(encoders.items(), start=1):
            scores[name] = score_encoder(trainer, encoder)
            stage(done)
        if test is not None and not test.labels_known:
            scores |= scores_without_training(trainer)
    if not is_selecting:
        return Kept(last, step, "", scores)
    # The first process decides, because rounding may differ between devices.
    chosen = dist.from_first(lambda: best_of({name: scores[name] for name in steps}))
    return Kept(encoders[chosen], steps[chosen], reason(chosen, scores), scores)


def judged_steps(trainer: Trainer) -> int:
    """Return the steps by which a run is judged: at least 100 for a run that starts from weights.

    Few steps teach a new encoder nothing, but they can improve or ruin good initial weights.
    """
    return trainer.step if trainer.before is None else max(trainer.step, LEAST_STEPS)


def best_of(candidates: Mapping[str, ViewScore]) -> str:
    """Return the name of the candidate to keep: the last encoder unless another is clearly and much better.

    Clearly: by more than 2.5 standard errors of the paired differences. Much: the last encoder has less than 0.75 of
    the score. Smaller differences do not tell which encoder separates classes better.
    """
    last = candidates[TRAINED]
    best = max(candidates, key=lambda name: candidates[name].mean)
    estimate = Estimate.of(candidates[best].retrieval - last.retrieval)
    is_clear = estimate.mean > STANDARD_ERRORS * estimate.standard_error
    return best if is_clear and last.mean < MUCH_LOWER * candidates[best].mean else TRAINED


def reason(chosen: str, scores: Mapping[str, ViewScore]) -> str:
    """Return which encoder is kept and why."""
    if chosen == TRAINED:
        return "the last step; no earlier encoder is clearly better"
    found = f"its views of held-out images find each other better ({scores[chosen].mean:.2f}, "
    found += f"{scores[TRAINED].mean:.2f} after the last step)"
    if chosen in (UNTRAINED, BEFORE):
        return f"the encoder before training, so training did not help: {found}"
    return f"the encoder of {chosen}: {found}"


def loaded(network: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    """Return a copy of the network with other weights."""
    other = copy.deepcopy(network)
    other.load_state_dict(weights)
    return other


def score_encoder(trainer: Trainer, network: nn.Module) -> ViewScore:
    encoder = trainer.encoder(network)
    return score_views(*held_out_views(trainer), encoder.represent, trainer.device)


def scores_without_training(trainer: Trainer) -> dict[str, ViewScore]:
    """Return the scores of hand-made features and of raw pixels."""

    def pixels(views: Tensor) -> Tensor:
        height, width = (min(side, PIXEL_SIDE) for side in views.shape[2:])
        return functional.adaptive_avg_pool2d(views, (height, width)).flatten(1)

    of = {HANDMADE: lambda views: hog_and_colour(255 * views), PIXELS: pixels}
    return {name: score_views(*held_out_views(trainer), represent, trainer.device) for name, represent in of.items()}


def held_out_views(trainer: Trainer) -> tuple[Augmenter, ImageRows]:
    """Return the augmentation that makes the views, and the held-out images: evenly spaced ones if there are many."""
    assert trainer.data.test is not None
    assert trainer.config.image_size is not None
    normalised = trainer.augment.eval_transform
    augment = Augmenter(
        mild(trainer.config.augment),
        views=2,
        image_size=trainer.config.image_size,
        mean=normalised.mean,
        std=normalised.std,
        seed=trainer.config.seed,
    ).to(trainer.device)
    images = len(trainer.data.test)
    rows = torch.linspace(0, images - 1, min(images, MOST_IMAGES)).round().long()
    return augment, Subset(trainer.data.test, rows)
