"""Did training help? Compares the trained encoder with the one before training, and with features without training.

With labels, accuracies on held-out images are compared; without labels, the scores of `view_retrieval` on held-out
images. All intervals have a confidence of 95 % and are paired: both representations are measured on the same images.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isinf, sqrt
from typing import Any

from torch import Tensor

from twofold.evaluate.view_retrieval import Estimate, ViewScore

NORMAL = 1.959964  # standard errors on each side of an interval of 95 %
LEAST_STEPS = 100  # with fewer steps of training, there is no judgement
LEAST_IMAGES = 50  # with fewer held-out images, there is no judgement
MOST_COPIES = 0.5  # with a larger share of copies, among training or held-out images, there is no judgement
NOTICEABLE = 0.03  # of the score of views; if the interval begins below, more invariance need not mean better features
MUCH_LOWER = 0.75  # of the score of views at the start; below, the lower score means that training did not help
FEWER_DIMENSIONS = 0.6  # of the effective rank at the start; below, a higher score does not mean that training helped
NEGLIGIBLE = 0.01  # of an accuracy: a smaller difference does not matter

TRAINED, UNTRAINED, BEFORE = "trained", "untrained", "before training"
HANDMADE, PIXELS = "HOG + colour", "raw pixels"
WORDS = {
    UNTRAINED: "the untrained encoder",
    BEFORE: "the encoder before training",
    HANDMADE: "hand-made features (HOG + colour)",
    PIXELS: "raw pixels",
}
MEASURES = {
    "linear_accuracy": "linear accuracy",
    "knn_accuracy": "kNN accuracy",
    "view_retrieval": "retrieval of views",
}


BEGINNINGS = {
    "helped": "{what} helped",
    "did not help": "{what} did not help",
    "cannot tell": "Cannot tell whether {what} helped",
}
TRAINING, TRAINING_AND_ADAPTER = "training", "training and the adapter"  # what is judged
FROM_SCRATCH = "Train for more steps, or start from a pretrained encoder (--init efficientnet-lite0 or timm:NAME)."
FROM_WEIGHTS = "Lower lr or train for fewer epochs, or use the encoder that the run started from."
UNCERTAIN = {
    "labels": "No accuracy is lower than before, but chance may explain the gains: hold out more (test_fraction).",
    "views": "Labels tell more than views: label some of the images and run twofold probe.",
}


@dataclass(frozen=True)
class Comparison:
    """The trained encoder minus a baseline, as fractions, with an interval of 95 %."""

    baseline: str
    measure: str  # a key of MEASURES
    difference: float
    low: float
    high: float

    @property
    def is_better(self) -> bool:
        """Whether the trained encoder is clearly better."""
        return self.low > 0

    @property
    def is_worse(self) -> bool:
        """Whether the trained encoder is clearly worse."""
        return self.high < 0

    def __str__(self) -> str:
        low, high = f"{100 * self.low:+.1f}", f"{100 * self.high:+.1f}"
        return f"{MEASURES[self.measure]} {100 * self.difference:+.1f} points ({low} to {high})"


@dataclass(frozen=True)
class Gain:
    """The answer to the question whether training helped."""

    kind: str  # helped, did not help, cannot tell, or not judged
    sentence: str
    by: str | None = None  # labels or views: what the answer is based on
    evidence: tuple[str, ...] = ()
    remedy: str | None = None
    comparisons: tuple[Comparison, ...] = ()

    @property
    def surpassed_by(self) -> tuple[str, ...]:
        """The baselines, apart from the start of training, that are clearly better in some measure."""
        return surpassing(self.comparisons)

    def record(self) -> dict[str, Any]:
        """Return the answer as a dictionary for JSON."""
        return asdict(self) | {
            "evidence": list(self.evidence),
            "comparisons": [asdict(each) for each in self.comparisons],
            "surpassed_by": list(self.surpassed_by),
        }


def paired_difference(ours: Tensor, theirs: Tensor) -> tuple[float, float, float]:
    """Return the difference of two accuracies on the same images, and the ends of its interval of 95 %.

    The interval is the adjusted Wald interval of Bonett and Price (2012) for paired proportions: one image is added to
    each of the two kinds on which the classifiers disagree. It keeps its confidence with few images, and has a width
    above 0 if the classifiers never disagree.

    Parameters
    ----------
    ours, theirs : Tensor
        Whether each image is classified correctly, bool `[n]`.
    """
    n = len(ours)
    gained, lost = int((ours & ~theirs).sum()), int((~ours & theirs).sum())
    up, down = (gained + 1) / (n + 2), (lost + 1) / (n + 2)
    error = NORMAL * sqrt((up + down - (up - down) ** 2) / (n + 2))
    return (gained - lost) / n, max(-1.0, up - down - error), min(1.0, up - down + error)


def compare_accuracies(correct: Mapping[str, Mapping[str, Tensor]]) -> list[Comparison]:
    """Compare the trained encoder with each other representation.

    Parameters
    ----------
    correct : mapping
        For each representation, and for each measure, whether each test image is classified correctly.
    """
    ours = correct[TRAINED]
    return [
        Comparison(name, measure, *paired_difference(ours[measure], right))
        for name, measures in correct.items()
        if name != TRAINED
        for measure, right in measures.items()
    ]


def start_of(comparisons: Sequence[Comparison]) -> str:
    """Return the name of the encoder before training: the one with initial weights if there is one."""
    return BEFORE if any(each.baseline == BEFORE for each in comparisons) else UNTRAINED


def surpassing(comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    """Return the baselines, apart from the start of training, whose accuracy is clearly better in some measure."""
    start = start_of(comparisons)
    better = (each for each in comparisons if each.is_worse and each.measure != "view_retrieval")
    return tuple(dict.fromkeys(each.baseline for each in better if each.baseline != start))


def obstacle(steps: int, test_images: int, copies: float) -> str:
    """Return why a run cannot be judged, or "" if it can be.

    `copies` is the share of copies: among the training images, or training images among the held-out images.
    """
    if steps < LEAST_STEPS:
        return f"{steps} steps are too few ({LEAST_STEPS} are needed)"
    if test_images == 0:
        return "no images are held out"
    if test_images < LEAST_IMAGES:
        return f"{test_images} held-out images are too few ({LEAST_IMAGES} are needed)"
    if copies > MOST_COPIES:
        return f"{100 * copies:.0f} % of the images are copies of others"
    return ""


def judge_by_labels(
    comparisons: Sequence[Comparison],
    *,
    steps: int,
    test_images: int,
    copies: float = 0.0,
    with_adapter: bool = False,
) -> Gain:
    """Answer from accuracies, which are those with the adapter if the run fitted one.

    Training helped if linear or kNN accuracy is clearly above that before training and the other one is not lower by
    a point or more. It did not help if one is clearly lower and none is clearly higher, or if both intervals end
    below one point.
    """
    start = start_of(comparisons)
    against = [each for each in comparisons if each.baseline == start]
    better, worse = any(each.is_better for each in against), any(each.is_worse for each in against)
    if not against:
        kind = "not judged"
    elif better and all(each.difference > -NEGLIGIBLE for each in against):
        kind = "helped"
    elif not better and (worse or all(each.high < NEGLIGIBLE for each in against)):
        kind = "did not help"
    else:
        kind = "cannot tell"
    what = TRAINING_AND_ADAPTER if with_adapter else TRAINING
    return answer(kind, "labels", comparisons, obstacle(steps, test_images, copies), what)


def compare_views(scores: Mapping[str, ViewScore]) -> list[Comparison]:
    """Compare how well views of the same images find each other, with an interval of the mean of paired differences."""
    found = []
    for name, score in scores.items():
        if name != TRAINED:
            estimate = Estimate.of(scores[TRAINED].retrieval - score.retrieval)
            half = NORMAL * estimate.standard_error
            ends = (-1.0, 1.0) if isinf(half) else (estimate.mean - half, estimate.mean + half)
            found.append(Comparison(name, "view_retrieval", estimate.mean, *ends))
    return found


def judge_by_views(scores: Mapping[str, ViewScore], *, steps: int, test_images: int, copies: float = 0.0) -> Gain:
    """Answer without labels, by whether views of held-out images find each other.

    Training helped if views are found better than before training by at least 3 points, at the lower end of the
    interval, and if the features use at least 0.6 of the dimensions that they used then. It did not help if views are
    found clearly worse, at less than 0.75 of the score before training. Everything else cannot be told without labels:
    training may make features invariant to the views and useless for classes at the same time.
    """
    comparisons = compare_views(scores) if scores else []
    kind = "not judged"
    if scores:
        name = start_of(comparisons)
        (against,), trained, start = (
            [each for each in comparisons if each.baseline == name],
            scores[TRAINED],
            scores[name],
        )
        kind = "cannot tell"
        if against.low > NOTICEABLE and trained.rank >= FEWER_DIMENSIONS * start.rank:
            kind = "helped"
        elif against.is_worse and trained.mean < MUCH_LOWER * start.mean:
            kind = "did not help"
    gain = answer(kind, "views", comparisons, obstacle(steps, test_images, copies))
    if not scores:
        return gain
    ranks = f"effective rank of the features: {trained.rank:.1f}, {start.rank:.1f} before training"
    return replace(gain, evidence=(*gain.evidence, ranks))


def answer(kind: str, by: str, comparisons: Sequence[Comparison], problem: str, what: str = TRAINING) -> Gain:
    """Put an answer into words. With a problem, the run is not judged; the differences are still reported."""
    start = start_of(comparisons)
    against = [each for each in comparisons if each.baseline == start]
    measured = f"compared with {WORDS[start]}: {' and '.join(map(str, against))}" if against else ""
    if problem or not against:
        why = f"Not judged whether {what} helped: {problem or 'nothing was measured'}."
        return Gain("not judged", why, by, (f"C{measured[1:]}",) if measured else (), None, tuple(comparisons))
    words = BEGINNINGS[kind].format(what=what if by == "labels" or kind == "cannot tell" else f"{what} probably")
    evidence = [
        f"{name}: {' and '.join(str(each) for each in comparisons if each.baseline == name)}"
        for name in dict.fromkeys(each.baseline for each in comparisons)
        if name != start
    ]
    return Gain(
        kind,
        f"{words[0].upper()}{words[1:]}, {measured}.",
        by,
        tuple(evidence),
        remedy(kind, by, comparisons),
        tuple(comparisons),
    )


def remedy(kind: str, by: str, comparisons: Sequence[Comparison]) -> str | None:
    """Return what to do. Advice to train less is only for accuracies or scores that fell."""
    start = start_of(comparisons)
    surpassed = [WORDS[name] for name in surpassing(comparisons)]
    is_lower = any(each.difference < 0 for each in comparisons if each.baseline == start)
    found = []
    if surpassed:
        found.append(f"For these images, {' and '.join(surpassed)} are better in some measure.")
    if kind == "cannot tell" and not is_lower:
        found.append(UNCERTAIN[by])
    if start == BEFORE:
        found += [FROM_WEIGHTS] if kind == "did not help" or (kind == "cannot tell" and is_lower) else []
    elif surpassed or kind == "did not help" or (kind == "cannot tell" and is_lower):
        found.append(FROM_SCRATCH)
    return " ".join(found) or None
