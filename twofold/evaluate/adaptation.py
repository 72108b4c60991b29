"""Adapt a pretrained encoder to images: fit linear maps of its features, and choose one on held-out images.

`fit_adapter` makes one pass over the images. It needs no labels: most images give the moments of their views, the
others a score of each map. The map is kept only if it improves the score beyond doubt.

Shapes: n images, V random views, K features.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from twofold import counter
from twofold.config import Augment
from twofold.data.augment import Augmenter
from twofold.errors import TwofoldError, nearest
from twofold.evaluate import closed_form
from twofold.evaluate.encoder import Encoder, Progress
from twofold.evaluate.features import ImageRows, Subset
from twofold.evaluate.group_moments import GraphMoments, GroupMoments
from twofold.evaluate.neighbours import unit
from twofold.evaluate.view_retrieval import Estimate, view_retrieval
from twofold.models.adapter import Adapter
from twofold.models.encoders import PatchConv
from twofold.runs.folder import adapter_file
from twofold.runs.weights import save_adapter

VIEWS = 4  # random views of each image, in addition to the image as it is
MILD = Augment(crop_scale=(0.4, 1.0), brightness=0.2, contrast=0.2, saturation=0.2, hue=0.05, grayscale=0.0)
HELD_OUT = 0.2  # of the images, to choose the map
MOST_HELD_OUT, FEWEST_HELD_OUT = 500, 20
MOST_IMAGES = 10_000  # more images hardly change a covariance
MOST_FEATURES = 16_384  # a matrix of so many rows and columns takes 2 GiB, and there are about ten
DOUBT = 2.0  # a map is kept if its gain is above so many standard errors
NONE = "as it is"
RIDGE = 0.1  # added to the covariance, relative to the mean variance: it keeps directions with little variance small

Settings = dict[str, float]
Map = Callable[[Settings], Tensor]  # → the matrix of an adapter
Fit = Callable[[GroupMoments], Map]


@dataclass(frozen=True)
class Variant:
    """A family of maps: what it does, how a map is fitted, and the settings to try, from careful to bold."""

    meaning: str
    fit: Fit
    settings: tuple[Settings, ...]


def _spectral(weights: Callable[[Tensor, Settings], Tensor]) -> Fit:
    def fit(moments: GroupMoments) -> Map:
        total = moments.total
        found = closed_form.directions(total, moments.between, RIDGE * total.trace().item() / len(total))
        return lambda settings: found.map(weights(found.ratios, settings))

    return fit


def _within(moments: GroupMoments) -> Map:
    whitening = closed_form.within_whitening(moments.within)
    return lambda settings: whitening(settings["shrinkage"])


def _whitening_within(shrinkages: tuple[float, ...]) -> Variant:
    settings = tuple({"shrinkage": shrinkage} for shrinkage in shrinkages)
    return Variant("the variance within images is the same in all directions", _within, settings)


AUTO = "auto"
# If only views are related, the score still rises with bolder maps, but on CIFAR-10 the accuracy with few labels then
# falls. The other variants cost linear accuracy.
CAREFUL = _whitening_within((0.97, 0.95, 0.9))
# Features of patches are made without views, and bolder maps gain much in all accuracies (benchmarks/NOTES.md, "From
# scratch"). Below 0.5, little is gained, and the features of a network that was trained with views get too long.
BOLDER = _whitening_within((0.9, 0.7, 0.5))
VARIANTS = {
    "within": _whitening_within((0.9, 0.8, 0.7, 0.5, 0.3, 0.1)),
    "whitening": Variant(
        "W-MSE: the directions that differ most between images, with variance 1",
        _spectral(lambda ratios, settings: closed_form.whitening_weights(ratios, int(settings["rank"]))),
        tuple({"rank": rank} for rank in (256, 128, 64, 32, 16)),
    ),
    "ridge": Variant(
        "the ridge objective: all directions, weighted by how much they differ between images",
        _spectral(lambda ratios, settings: closed_form.ridge_weights(ratios, settings["ridge"], len(ratios))),
        tuple({"ridge": ridge} for ridge in (10.0, 1.0, 0.1)),
    ),
    "threshold": Variant(
        "alignment and decorrelation: without the directions that differ little between images",
        _spectral(lambda ratios, settings: closed_form.threshold_weights(ratios, settings["alignment"])),
        tuple({"alignment": alignment} for alignment in (0.5, 1.0, 2.0)),
    ),
}


@dataclass(frozen=True)
class Scored:
    """A map and its score on held-out images."""

    variant: str
    settings: Settings
    score: Estimate
    gain: Estimate  # over the features as they are, image by image


@dataclass(frozen=True, eq=False)
class Adaptation:
    """The result of `fit_adapter`: an adapter, or None if no map was better beyond doubt."""

    adapter: Adapter | None
    variant: str
    settings: Settings
    before: Estimate | None  # the score of the features as they are; None if there were too few images to measure it
    tried: list[Scored]
    images: int
    held_out: int
    seconds: float
    reason: str

    @property
    def after(self) -> Estimate | None:
        """The score of the map that was chosen."""
        found = [each.score for each in self.tried if (each.variant, each.settings) == (self.variant, self.settings)]
        return found[0] if found else self.before

    def description(self) -> dict[str, Any]:
        """Return all numbers behind the choice, for JSON."""
        scores = {name: None if value is None else asdict(value) for name, value in self.scores().items()}
        return {
            "variant": self.variant,
            "settings": self.settings,
            "reason": self.reason,
            **scores,
            "tried": [asdict(each) for each in self.tried],
            "images": self.images,
            "held_out": self.held_out,
            "views": VIEWS + 1,
            "seconds": round(self.seconds, 2),
        }

    def scores(self) -> dict[str, Estimate | None]:
        return {"before": self.before, "after": self.after}

    def save(self, encoder: Path, network: nn.Module, **more: Any) -> Path | None:
        """Write the adapter next to the file of the encoder's weights, and return its path.

        Without an adapter, an adapter of earlier weights is removed.
        """
        path = adapter_file(encoder)
        if self.adapter is None:
            path.unlink(missing_ok=True)
            return None
        save_adapter(path, self.adapter, network.state_dict(), self.description() | more)
        return path


def mild_views(encoder: Encoder, *, flip: float = 0.5, seed: int = 0) -> Augmenter:
    """Return an augmentation that keeps what an image shows: large crops, small changes of colour, and flips."""
    preprocess: Any = encoder.preprocess
    return Augmenter(
        replace(MILD, flip=flip),
        views=VIEWS,
        image_size=preprocess.image_size,
        mean=preprocess.mean,
        std=preprocess.std,
        seed=seed,
    )


@torch.no_grad()
def fit_adapter(
    encoder: Encoder,
    images: ImageRows,
    augment: Augmenter | None = None,
    *,
    variant: str = AUTO,
    groups: Tensor | None = None,
    whole_groups: bool = False,
    related: Callable[[Tensor], Tensor] | None = None,
    most_images: int = MOST_IMAGES,
    progress: Progress | None = None,
) -> Adaptation:
    """Fit an adapter for the features of an encoder.

    Parameters
    ----------
    encoder : Encoder
        The encoder, without an adapter.
    images : ImageRows
        The training images.
    augment : Augmenter, optional
        Makes the views; by default `mild_views`.
    variant : str
        A name of `VARIANTS`, whose best map is returned even if it is worse than the features as they are. Or `auto`:
        careful whitening within images, or no adapter if that is not better beyond doubt. For `conv-patches`, it is
        less careful.
    groups : int64 Tensor [n], optional
        The graph: images of the same group are related; negative: related to no other image. By default, only views
        of the same image are related.
    whole_groups : bool
        Whether all images of a group are held out together, because the adapter is meant for new groups.
    related : callable, optional
        A graph instead of groups: row numbers [N] → weights of at least 0 between these images [N, N].
    most_images : int
        With more images, a regular selection of so many is used.
    progress : callable, optional
        Called with the number of images done and of all images.
    """
    if variant not in (AUTO, *VARIANTS):
        raise TwofoldError(f"unknown variant '{variant}'{nearest(variant, [AUTO, *VARIANTS])}")
    started = time.monotonic()
    rows = torch.arange(len(images))
    if len(images) > most_images:
        rows = torch.linspace(0, len(images) - 1, most_images).round().long().unique()
    if len(rows) < 2:
        raise TwofoldError(f"an adapter needs at least two images, not {len(rows)}: pass more images")
    numbers = torch.full((len(rows),), -1) if groups is None else groups.cpu()[rows]
    held_out = _held_out(numbers, whole_groups)
    moments = GroupMoments(int(numbers.max()) + 1) if related is None else GraphMoments(related)
    members = numbers if related is None else rows  # what the moments need of each image
    kept: list[Tensor] = []
    for here, features in encoder.view_blocks(Subset(images, rows), augment or mild_views(encoder), progress):
        _refuse_unusable(features)
        held = held_out[here]
        moments.add(features[:, ~held.to(features.device)], members[here][~held])
        kept.append(features[:, held.to(features.device)])
    test, test_members = torch.cat(kept, 1), members[held_out]
    graph = _same_group(test_members) if related is None else related(test_members).cpu() > 0
    name = "within" if variant == AUTO else variant
    family = VARIANTS[name]
    if variant == AUTO and groups is None and related is None:
        family = BOLDER if isinstance(encoder.network, PatchConv) else CAREFUL
    before: Estimate | None = None
    tried: list[Scored] = []
    if len(test_members):
        before, tried = _scored(name, family, moments, test, graph)
        moments.add(test, test_members)
    settings, reason = _choose(family, tried, is_forced=variant != AUTO)
    adapter = None if settings is None else Adapter(moments.mean, family.fit(moments)(settings))
    chosen = (NONE, {}) if settings is None else (name, settings)
    seconds = time.monotonic() - started
    return Adaptation(adapter, *chosen, before, tried, len(rows), len(test_members), seconds, reason)


def _held_out(numbers: Tensor, whole_groups: bool) -> Tensor:
    """Return which images choose the map, bool [n]; none if there are too few."""
    rows = torch.arange(len(numbers))
    if len(rows) < 2 * FEWEST_HELD_OUT:
        return torch.zeros(len(rows), dtype=torch.bool)
    count = min(max(int(HELD_OUT * len(rows)), FEWEST_HELD_OUT), MOST_HELD_OUT)
    # All images of a group share a draw. Numbers of groups and of single images must not coincide.
    member = torch.where(numbers >= 0, numbers, len(rows) + rows) if whole_groups else rows
    draws = counter.uniform(counter.key(member, "adapter.held out"))
    held_out = draws <= draws.kthvalue(count).values
    return held_out if 2 * held_out.sum() <= len(rows) else _held_out(numbers, whole_groups=False)


def _scored(
    name: str, family: Variant, moments: GroupMoments, features: Tensor, graph: Tensor
) -> tuple[Estimate, list[Scored]]:
    """Return the score of held-out features [1 + V, n, K] as they are, and with each map of a variant."""
    before = _score(features, graph)
    tried, matrix = [], family.fit(moments)
    for settings in family.settings:
        adapter = Adapter(moments.mean, matrix(settings)).to(features.device)
        values = _score(adapter(features), graph)
        tried.append(Scored(name, settings, Estimate.of(values), Estimate.of(values - before)))
    return Estimate.of(before), tried


def _same_group(numbers: Tensor) -> Tensor:
    """Return which images are of the same group, bool [n, n]."""
    return (numbers[:, None] == numbers) & (numbers >= 0)[:, None]


def _score(features: Tensor, graph: Tensor) -> Tensor:
    """Return the reciprocal rank of each image, [n]: whether it finds its other views, or related images.

    `graph`, bool [n, n], says which images are related; its diagonal does not count.
    """
    of_group = graph & ~torch.eye(len(graph), dtype=torch.bool)
    if not of_group.any():
        return view_retrieval(features)
    return torch.stack([group_retrieval(view, of_group.to(features.device)) for view in features]).mean(0)


def group_retrieval(features: Tensor, related: Tensor) -> Tensor:
    """Return 1/rank of the most similar related image among all other images, for each image that has one, [m].

    Parameters
    ----------
    features : Tensor [n, K]
        One row for each image.
    related : bool Tensor [n, n]
        The graph, False on the diagonal.
    """
    asking = related.any(1)
    rows = unit(features)
    similarity = (rows[asking] @ rows.T).masked_fill(
        torch.eye(len(rows), device=rows.device).bool()[asking], -torch.inf
    )
    best = similarity.masked_fill(~related[asking], -torch.inf).amax(1, keepdim=True)
    unrelated = similarity.masked_fill(related[asking], -torch.inf)
    above, tied = (unrelated > best).sum(1), (unrelated == best).sum(1)
    return (1 / (1 + above.double() + tied.double() / 2)).cpu()


def _choose(family: Variant, tried: list[Scored], *, is_forced: bool) -> tuple[Settings | None, str]:
    """Return the settings of the most careful map that is as good as the best one, or None, and the reason."""
    if not tried:
        reason = f"fewer than {2 * FEWEST_HELD_OUT} images: too few to choose"
        return (family.settings[0], f"{reason}, so the most careful map") if is_forced else (None, reason)
    beyond_doubt = [each for each in tried if each.gain.mean > DOUBT * each.gain.standard_error]
    allowed = tried if is_forced else beyond_doubt
    if not allowed:
        return None, "no map finds held-out images better beyond doubt"
    best = max(allowed, key=lambda each: each.score.mean)
    least = best.score.mean - best.gain.standard_error
    chosen = next(each for each in allowed if each is best or each.score.mean >= least)
    return chosen.settings, "the most careful map within one standard error of the best"


def _refuse_unusable(features: Tensor) -> None:
    if features.shape[-1] > MOST_FEATURES:
        raise TwofoldError(
            f"the encoder returns {features.shape[-1]:,} features, and an adapter is possible for {MOST_FEATURES:,} at "
            "most: pool the last feature map, for example to its mean"
        )
    if not torch.isfinite(features).all():
        raise TwofoldError("the encoder returned features that are not finite: check its weights and its input")
