"""Verdicts: has a representation collapsed? They use spectra and metrics of a run, and need no labels.

One verdict also uses accuracies, if the images have labels. `gain.py` answers whether training helped. The limits below
were chosen on runs of every method that train well and on runs that were made to fail; tests check the verdicts on
both.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from twofold.evaluate.gain import LEAST_STEPS, Gain
from twofold.evaluate.metrics import dimensions_above, effective_rank

Metrics = Mapping[str, float]

# A sign of failure must last for this many measurements in a row: in good runs ranks may fall at first and rise again.
LASTING = 3

# Dimensional collapse: the limit of the effective rank is FEW_RANKS, D/8 below 64 dimensions, and D/64 above 512, where
# rounding errors alone add to the rank. It is never below ONE_RANK, at which one direction has nearly all variance.
FEW_RANKS = 8.0
ONE_RANK = 1.5
FEW_ABOVE = 4  # largest number of singular values above 0.1 of the largest in a collapse with a tail of small ones
NO_TAIL = 1.25  # effective rank divided by that number, without a tail; early Barlow Twins has a tail: 1.5 or more

# Complete collapse.
ONE_POINT = 1e-3  # variance divided by the mean square of the embeddings; below, all embeddings are at one point
ROUNDING = 1e-5  # the same ratio; below, the variance may be rounding (bfloat16 leaves up to 5e-6 in every direction)
ONE_DIRECTION = -0.005  # uniformity; above, all embeddings point in one direction
SHRUNK = 1e-2  # relative to the largest variance and to the first loss; both are small if all embeddings shrink

# Norms.
FADED = 0.03  # relative to the largest norm
GROWN = 300.0  # relative to the first norm; good runs stay below 40

# Guessing: the loss is less than this fraction below that of equal probabilities; good DINO runs are 5e-3 below.
SAYS_NOTHING = 1e-3

# Falling probe: accuracy below its best for LASTING measurements. It varies in the first epochs, and chance alone moves
# it by more than 0.1 on a few dozen images, so the fall must also exceed this many standard errors.
PROBE_FALL = 0.1
STANDARD_ERRORS = 3


@dataclass(frozen=True)
class Verdict:
    """A verdict: what was measured, what it means, and what to try."""

    kind: str  # the name of the verdict in JSON; `healthy` means that no collapse was detected
    sentence: str  # the verdict as a sentence
    evidence: tuple[str, ...] = ()  # measured values that support it
    remedy: str | None = None  # what to try

    @property
    def bad(self) -> bool:
        """Whether the run failed."""
        return self.kind not in ("healthy", "few dimensions", "common offset", "unknown")

    def record(self) -> dict[str, Any]:
        """Return the verdict as a dictionary for JSON."""
        return asdict(self) | {"evidence": list(self.evidence)}


@dataclass(frozen=True)
class Snapshot:
    """Measures of the embeddings at one step, which a verdict needs."""

    step: int
    dimension: int  # number of dimensions of the embeddings
    rank: float  # effective rank
    above: int  # number of singular values above 0.1 of the largest
    variance: float  # Σλ, the sum of the eigenvalues
    norm: float | None = None  # root mean square length of the embeddings, which are not centred
    uniformity: float | None = None  # as `metrics.uniformity` returns it
    subject: str = "embeddings"  # what the spectrum is of, in sentences
    limit: str = ""  # why the features have no more dimensions, if there are few rows

    @classmethod
    def of(
        cls, spectrum: Tensor, values: Mapping[str, Any], subject: str = "embeddings", limit: str = ""
    ) -> "Snapshot":
        """Measure a spectrum, the eigenvalues `[D]` of a covariance. `values` is a line of metrics.jsonl."""
        return cls(
            values.get("step", 0),
            len(spectrum),
            effective_rank(spectrum),
            dimensions_above(spectrum),
            spectrum.double().sum().item(),
            values.get("embedding_norm"),
            values.get("uniformity"),
            subject,
            limit,
        )

    def __str__(self) -> str:
        return f"effective rank of the {self.subject} {self.rank:.1f} of {self.dimension}{self.limit}"

    @property
    def fewest(self) -> float:
        """The effective rank below which a representation has few dimensions."""
        return max(min(FEW_RANKS, self.dimension / 8), self.dimension / 64, min(ONE_RANK, self.dimension))

    @property
    def few_dimensions(self) -> bool:
        """Whether the embeddings vary in few directions only."""
        few = self.rank < self.fewest and self.above <= self.fewest
        return few and (self.above <= FEW_ABOVE or self.rank <= NO_TAIL * self.above)

    @property
    def one_point(self) -> bool:
        """Whether all embeddings are nearly equal."""
        return self.variance == 0 or (self.norm is not None and self.variance <= ONE_POINT * self.norm**2)

    @property
    def one_direction(self) -> bool:
        """Whether all embeddings have nearly the same direction."""
        return self.uniformity is not None and self.uniformity >= ONE_DIRECTION

    @property
    def rich_about_its_mean(self) -> bool:
        """Whether the embeddings minus their mean have many dimensions."""
        many = self.rank >= self.fewest and self.above > min(FEW_ABOVE, self.fewest)
        return many and self.norm is not None and self.variance > ROUNDING * self.norm**2


def snapshots(spectra: Sequence[Mapping[str, Any]], metrics: Sequence[Metrics]) -> list[Snapshot]:
    """Return the snapshots of a run from the lines of spectrum.jsonl and metrics.jsonl."""
    values = {line["step"]: line for line in metrics}
    return [
        Snapshot.of(torch.tensor(line["eigenvalues"]), values.get(line["step"], {"step": line["step"]}))
        for line in spectra
        if line["of"] == "embeddings"
    ]


def judge(
    history: Sequence[Snapshot],
    metrics: Sequence[Metrics] = (),
    *,
    method: str = "",
    few_dimensions: str = "",
    guess: float | None = None,
    held_out: int | None = None,
) -> Verdict:
    """Return the verdict on a run so far, or on a single spectrum.

    Parameters
    ----------
    history : sequence of Snapshot
        The embeddings at the measured steps.
    metrics : sequence of mapping
        The lines of metrics.jsonl. It is empty for a single spectrum that is not part of a run.
    method : str
        The method of the run. Remedies do not suggest this method.
    few_dimensions : str
        The reason why the method uses few dimensions by design; "" if it does not.
    guess : float, optional
        The loss when all probabilities are equal, if training can get stuck there.
    held_out : int, optional
        The number of images on which accuracies are measured.
    """
    if not history:
        return Verdict("unknown", "No verdict yet: no spectrum was recorded.")
    return (
        exploding(history)
        or common_offset(history, metrics)
        or complete_collapse(history, metrics, method)
        or vanishing(history)
        or guessing(metrics, guess)
        or standing_still(metrics)
        or too_short(history, metrics)
        or dimensional_collapse(history, method, few_dimensions)
        or falling_probe(metrics, held_out)
        or no_collapse(history, metrics)
    )


def not_finite(step: int, terms: Sequence[str]) -> Verdict:
    named = " and ".join(terms)
    of_steps = "Lower lr, set clip=1, or set precision=float32."
    of_objective = "The optimizer had not taken a step yet, so check the objective and its inputs."
    return Verdict(
        "not finite",
        f"{named} {'is' if len(terms) == 1 else 'are'} not finite from step {step} on.",
        remedy=of_steps if step > 1 else of_objective,
    )


def exploding(history: Sequence[Snapshot]) -> Verdict | None:
    first, last = history[0].norm, history[-1].norm
    if first is None or last is None or last <= GROWN * first:
        return None
    since = lasting([item.norm is not None and item.norm > GROWN * first for item in history], history, 1)
    return Verdict(
        "exploding norm",
        f"Exploding norm: the embeddings are {last / first:.3g} times as long as at step {history[0].step}. "
        "Training is unstable.",
        (f"root mean square length {last:.3g}, {first:.3g} at first; over {GROWN:g} times that since step {since}",),
        "Lower lr first. A longer warm-up (warmup_epochs), clip=1 or weight_decay also limit the norm.",
    )


def common_offset(history: Sequence[Snapshot], metrics: Sequence[Metrics]) -> Verdict | None:
    """Judge a single spectrum only: in a run, embeddings that become this similar have collapsed."""
    last = history[-1]
    if metrics or not (last.one_point or last.one_direction) or not last.rich_about_its_mean:
        return None
    return Verdict(
        "common offset",
        f"No collapse detected: {last}. But they have a large common offset: all of them point in nearly the same "
        "direction.",
        (
            f"variance {last.variance:.3g}, root mean square length {last.norm:.3g}",
            values_in_use(last),
        ),
        "Subtract the mean from the features before you compute cosine similarities or kNN.",
    )


def complete_collapse(history: Sequence[Snapshot], metrics: Sequence[Metrics], method: str) -> Verdict | None:
    last, most = history[-1], max(item.variance for item in history)
    losses = [line["loss"] for line in metrics if "loss" in line]

    def verdict(sentence: str, signs: Sequence[bool], *evidence: str) -> Verdict:
        since = lasting(signs, history, 1)
        return Verdict(
            "complete collapse",
            f"Complete collapse{f' since step {since}' if len(history) > 1 else ''}: {sentence}.",
            evidence,
            ("" if metrics else "First check whether the images are copies of each other. ")
            + "Keep the stop-gradient and the predictor of predictive methods (stop_gradient=true, predictor=true) and "
            "the variance term of VICReg, or choose a method that cannot collapse in this way: "
            f"{others(method, 'frossl', 'simclr', 'barlow-twins')}.",
        )

    if last.one_point:
        return verdict(
            "all images have nearly the same embedding",
            [item.one_point for item in history],
            f"variance {last.variance:.3g}, root mean square length {last.norm or 0:.3g}",
        )
    if lasting([item.one_direction for item in history], history, min(LASTING, len(history))) is not None:
        return verdict(
            "the embeddings of all images point in the same direction",
            [item.one_direction for item in history],
            f"uniformity {last.uniformity:.2g}; 0 means one direction, -4 an even spread",
        )
    if len(losses) > 1 and abs(losses[-1]) < SHRUNK * abs(losses[0]) and last.variance < SHRUNK * most:
        return verdict(
            "all embeddings shrink to one point, and the loss shrinks to almost 0",
            [item.variance < SHRUNK * most for item in history],
            f"variance {last.variance:.3g}, {most:.3g} at its largest",
            f"loss {losses[-1]:.3g}, {losses[0]:.3g} at first",
        )
    return None


def vanishing(history: Sequence[Snapshot]) -> Verdict | None:
    norms = [item.norm for item in history if item.norm is not None]
    if len(norms) < 2 or norms[-1] >= FADED * max(norms):
        return None
    return Verdict(
        "vanishing norm",
        f"Vanishing norm: the embeddings are {norms[-1] / max(norms):.3g} times as long as at their longest.",
        (f"root mean square length {norms[-1]:.3g}, {max(norms):.3g} at its largest",),
        "Lower weight_decay or lr. A loss of cosine similarities ignores the norm, but an optimizer step of a given "
        "size turns short embeddings further.",
    )


def guessing(metrics: Sequence[Metrics], guess: float | None) -> Verdict | None:
    losses = [line["loss"] for line in metrics if "loss" in line][-LASTING:]
    if guess is None or len(losses) < LASTING or min(losses) < (1 - SAYS_NOTHING) * guess:
        return None
    return Verdict(
        "guessing",
        f"Guessing: the loss, {losses[-1]:.4f}, is not lower than with equal probabilities for all prototypes, "
        "so the method learns nothing.",
        (f"equal probabilities give {guess:.4f}; the last {LASTING} measured losses are less than 0.1 % below that",),
        "Sharpen the targets (lower first_target_temperature and target_temperature relative to temperature), weaken "
        "augment.*, or let the teacher follow faster (teacher_momentum=0.99).",
    )


def standing_still(metrics: Sequence[Metrics]) -> Verdict | None:
    losses = [line["loss"] for line in metrics if "loss" in line]
    if len(losses) <= LASTING or min(losses) != max(losses):
        return None
    return Verdict(
        "standing still",
        f"Nothing is learned: the loss was {losses[0]:.4g} at every measurement.",
        (f"all {len(losses)} measured losses are exactly equal",),
        "Check that the objective depends on the embeddings, or raise lr.",
    )


def too_short(history: Sequence[Snapshot], metrics: Sequence[Metrics]) -> Verdict | None:
    """Judge runs only: a single spectrum, without metrics, is judged by its shape."""
    last = history[-1]
    if not metrics or (len(history) >= LASTING and last.step >= LEAST_STEPS):
        return None
    return Verdict(
        "unknown",
        f"No verdict yet: too few steps (at least {LEAST_STEPS} are needed). At step {last.step}: {last}.",
    )


def dimensional_collapse(history: Sequence[Snapshot], method: str, few_dimensions: str) -> Verdict | None:
    since = lasting([item.few_dimensions for item in history], history, min(LASTING, len(history)))
    if since is None:
        return None
    last = history[-1]
    began = f" since step {since}" if len(history) > 1 else ""
    evidence = (ranks(history), values_in_use(last))
    if few_dimensions:
        return Verdict(
            "few dimensions",
            f"Few dimensions{began}, as expected with this method: {last}. {few_dimensions}",
            evidence,
            "If you need more dimensions, choose another method, such as frossl or simclr.",
        )
    instead = others(method, "frossl", "vicreg", "barlow-twins")
    width = "Make the last width of the projector twice the batch size. " if method == "frossl" else ""
    return Verdict(
        "dimensional collapse",
        f"Dimensional collapse{began}: {last}. They vary in only a few directions.",
        evidence,
        f"{width}Lower lr, or set clip=1. In predictive methods, keep the stop-gradient, the predictor and the "
        f"teacher. Or choose a method whose loss demands variance in every direction: {instead}.",
    )


def others(method: str, *names: str) -> str:
    """Return these methods without the method of the run."""
    return ", ".join(name for name in names if name != method)


def falling_probe(metrics: Sequence[Metrics], held_out: int | None) -> Verdict | None:
    measured = [line for line in metrics if "online_accuracy" in line]
    if len(measured) <= LASTING:
        return None
    best, last = max(measured, key=lambda line: line["online_accuracy"]), measured[-1]
    top = best["online_accuracy"]
    late = max(line["online_accuracy"] for line in measured[-LASTING:])
    if late >= top - max(PROBE_FALL, chance(top, late, held_out)):
        return None
    falls = last["loss"] < best["loss"]
    of_objective = (
        "The loss can fall without these classes. Look at the augmented views: do they still show the class? If not, "
        "weaken augment.*. Or train for fewer epochs."
    )
    of_steps = "Lower lr, warm up for longer (warmup_epochs) or set clip=1. In predictive methods, keep the teacher."
    return Verdict(
        "falling probe",
        f"The features lose the classes{' while the loss falls' if falls else ''}: online accuracy "
        f"{100 * last['online_accuracy']:.1f} %, {100 * top:.1f} % at step {best['step']}.",
        (f"the loss changed from {best['loss']:.4g} to {last['loss']:.4g} in the same steps",),
        of_objective if falls else of_steps,
    )


def chance(one: float, other: float, images: int | None) -> float:
    """Return the largest difference of two accuracies on `images` images that chance explains."""
    return 0.0 if images is None else STANDARD_ERRORS * math.sqrt((one * (1 - one) + other * (1 - other)) / images)


def with_gain(verdict: Verdict, gain: Gain) -> Verdict:
    """Correct a dimensional collapse of the embeddings if the features became better than before training."""
    if verdict.kind != "dimensional collapse" or gain.kind != "helped":
        return verdict
    return Verdict(
        "few dimensions",
        "Few dimensions, but no collapse: the embeddings vary in only a few directions, and yet the features became "
        f"better than before training. {verdict.evidence[0].capitalize()}.",
        verdict.evidence[1:],
    )


def no_collapse(history: Sequence[Snapshot], metrics: Sequence[Metrics]) -> Verdict:
    last = history[-1]
    evidence = [values_in_use(last)]
    if len(history) > 1:
        evidence.append(ranks(history))
    losses = [line["loss"] for line in metrics if "loss" in line]
    if len(losses) > 1 and losses[-1] > losses[0]:
        evidence.append(
            f"the loss rose from {losses[0]:.4g} to {losses[-1]:.4g}: expected with a teacher, a queue or prototypes, "
            "because their targets change; otherwise try a lower lr"
        )
    few = last.above <= FEW_ABOVE < last.dimension / 16
    found = "No collapse detected, but a few directions dominate" if few else "No collapse detected"
    return Verdict("healthy", f"{found}: {last}.", tuple(evidence))


def values_in_use(snapshot: Snapshot) -> str:
    return f"{snapshot.above} of {snapshot.dimension} singular values are above a tenth of the largest"


def ranks(history: Sequence[Snapshot]) -> str:
    first, last = history[0], history[-1]
    earlier = f" at step {last.step}, {first.rank:.1f} at step {first.step}" if len(history) > 1 else ""
    return f"effective rank of the {last.subject} {last.rank:.1f}{earlier}"


def lasting(signs: Sequence[bool], history: Sequence[Snapshot], least: int) -> int | None:
    """Return the step since which `signs` is true without a break, or None for fewer than `least` snapshots."""
    length = 0
    for sign in reversed(signs):
        if not sign:
            break
        length += 1
    return history[-length].step if length >= max(least, 1) else None
