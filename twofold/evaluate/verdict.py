"""Whether a representation collapsed, in words, from its spectrum over time and the run's metrics: no labels needed.

The limits below were set on runs made to fail and on healthy ones of every method; tests hold both to their verdicts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from twofold.evaluate.metrics import dimensions_above, effective_rank

Metrics = Mapping[str, float]

LASTING = 3  # spectra, or looks, in a row that must agree: in the first steps of healthy runs ranks fall and rise again
FEW_RANKS = 8.0  # effective rank; D/8 below 64 dimensions; D/64 above 512, where rounding alone looks like some
ONE_RANK = 1.5  # the least of these limits: below it one direction has nearly all
FEW_ABOVE = 4  # singular values above 0.1 of the largest
NO_TAIL = 1.25  # effective rank over the number of these; Barlow Twins, early, has few and a tail: 1.5 or more
ONE_POINT = 1e-3  # variance, as a part of the mean square of the embeddings: they are all at one place
ROUNDING = 1e-5  # variance, as such a part: bfloat16 alone leaves up to 5e-6, in every direction
ONE_DIRECTION = -0.005  # uniformity: on the unit sphere, where losses of cosines live, they are all at one place
SHRUNK = 1e-2  # of the largest variance, and of the first loss: distances between views go with all others
FADED = 0.03  # of the largest norm
GROWN = 300.0  # times the first norm; healthy runs stay below 40
SAYS_NOTHING = 1e-3  # of the loss of equal probabilities, below it: healthy runs of DINO are at least 5e-3 below
PROBE_FALL = 0.1  # of accuracy, below its best, at three looks in a row: in the first epochs a probe goes up and down
STANDARD_ERRORS = 3  # that a fall must be worth too: of a few dozen images chance alone moves more than a tenth


@dataclass(frozen=True)
class Verdict:
    kind: str
    sentence: str
    evidence: tuple[str, ...] = ()
    remedy: str | None = None

    @property
    def bad(self) -> bool:
        return self.kind not in ("healthy", "few dimensions", "common offset", "unknown")

    def record(self) -> dict[str, Any]:
        return asdict(self) | {"evidence": list(self.evidence)}


@dataclass(frozen=True)
class Snapshot:
    """What a verdict needs of the embeddings' spectrum at one step."""

    step: int
    dimension: int
    rank: float  # effective rank
    above: int  # singular values above 0.1 of the largest
    variance: float  # Σλ
    norm: float | None = None  # root of the mean squared length of the embeddings, mean included
    uniformity: float | None = None

    @classmethod
    def of(cls, spectrum: Tensor, values: Mapping[str, Any]) -> "Snapshot":
        """`values`: a line of metrics.jsonl."""
        return cls(
            values.get("step", 0),
            len(spectrum),
            effective_rank(spectrum),
            dimensions_above(spectrum),
            spectrum.double().sum().item(),
            values.get("embedding_norm"),
            values.get("uniformity"),
        )

    @property
    def fewest(self) -> float:
        """Effective rank below which dimensions are few."""
        return max(min(FEW_RANKS, self.dimension / 8), self.dimension / 64, min(ONE_RANK, self.dimension))

    @property
    def few_dimensions(self) -> bool:
        few = self.rank < self.fewest and self.above <= self.fewest
        return few and (self.above <= FEW_ABOVE or self.rank <= NO_TAIL * self.above)

    @property
    def one_point(self) -> bool:
        return self.variance == 0 or (self.norm is not None and self.variance <= ONE_POINT * self.norm**2)

    @property
    def one_direction(self) -> bool:
        return self.uniformity is not None and self.uniformity >= ONE_DIRECTION

    @property
    def rich_about_its_mean(self) -> bool:
        many = self.rank >= self.fewest and self.above > min(FEW_ABOVE, self.fewest)
        return many and self.norm is not None and self.variance > ROUNDING * self.norm**2


def snapshots(spectra: Sequence[Mapping[str, Any]], metrics: Sequence[Metrics]) -> list[Snapshot]:
    """From the lines of spectrum.jsonl and metrics.jsonl."""
    values = {line["step"]: line for line in metrics}
    return [
        Snapshot.of(torch.tensor(line["eigenvalues"]), values.get(line["step"], {"step": line["step"]}))
        for line in spectra
        if line["of"] == "embeddings"
    ]


def judge(
    seen: Sequence[Snapshot],
    metrics: Sequence[Metrics] = (),
    *,
    method: str = "",
    few_dimensions: str = "",
    guess: float | None = None,
    held_out: int | None = None,
) -> Verdict:
    """The verdict on a run so far, or on one spectrum. `few_dimensions` says why a method leaves few by design, `guess`
    is the loss of equal probabilities where a method can end there, `held_out` how many images accuracies are of."""
    if not seen:
        return Verdict("unknown", "Nothing was measured yet.")
    return (
        exploding(seen)
        or common_offset(seen, metrics)
        or complete_collapse(seen, metrics, method)
        or vanishing(seen)
        or guessing(metrics, guess)
        or standing_still(metrics)
        or too_short(seen, metrics)
        or dimensional_collapse(seen, method, few_dimensions)
        or falling_probe(metrics, held_out)
        or healthy(seen, metrics)
    )


def not_finite(step: int, terms: Sequence[str]) -> Verdict:
    named = " and ".join(terms)
    of_steps = "Lower lr, or set clip=1, or precision=float32."
    of_objective = "No step had been taken: it is the objective, or what it was given."
    return Verdict(
        "not finite",
        f"{named} {'is' if len(terms) == 1 else 'are'} not finite from step {step} on.",
        remedy=of_steps if step > 1 else of_objective,
    )


def exploding(seen: Sequence[Snapshot]) -> Verdict | None:
    first, last = seen[0].norm, seen[-1].norm
    if first is None or last is None or last <= GROWN * first:
        return None
    since = lasting([item.norm is not None and item.norm > GROWN * first for item in seen], seen, 1)
    return Verdict(
        "exploding norm",
        f"Exploding norm: embeddings are {last / first:.3g} times as long as at step {seen[0].step}.",
        (f"root mean square length {last:.3g}, from {first:.3g}; above {GROWN:g} times that since step {since}",),
        "Lower lr first; a longer warm-up (warmup_epochs), clip=1 or weight_decay also hold it.",
    )


def common_offset(seen: Sequence[Snapshot], metrics: Sequence[Metrics]) -> Verdict | None:
    """Of one spectrum alone; in a run, embeddings that come to lie so near each other have collapsed."""
    last = seen[-1]
    if metrics or not (last.one_point or last.one_direction) or not last.rich_about_its_mean:
        return None
    return Verdict(
        "common offset",
        f"No collapse, effective rank {last.rank:.1f} of {last.dimension}, but a large common offset: "
        "all images point nearly the same way.",
        (
            f"variance {last.variance:.3g} at a root mean square length of {last.norm:.3g}",
            f"{last.above} of {last.dimension} singular values are above 0.1 of the largest",
        ),
        "Subtract the mean of the features before cosines or kNN.",
    )


def complete_collapse(seen: Sequence[Snapshot], metrics: Sequence[Metrics], method: str) -> Verdict | None:
    last, most = seen[-1], max(item.variance for item in seen)
    losses = [line["loss"] for line in metrics if "loss" in line]

    def verdict(sentence: str, signs: Sequence[bool], *evidence: str) -> Verdict:
        since = lasting(signs, seen, 1)
        return Verdict(
            "complete collapse",
            f"Complete collapse{f' since step {since}' if len(seen) > 1 else ''}: {sentence}.",
            evidence,
            ("" if metrics else "First look whether the images are copies of each other. ")
            + "Keep the stop-gradient and the predictor of predictive methods (stop_gradient=true, predictor=true) and "
            "the variance term of VICReg; or choose a method that cannot collapse so: "
            f"{others(method, 'frossl', 'simclr', 'barlow-twins')}.",
        )

    if last.one_point:
        return verdict(
            "all images have nearly the same embedding",
            [item.one_point for item in seen],
            f"variance {last.variance:.3g} at a root mean square length of {last.norm or 0:.3g}",
        )
    if lasting([item.one_direction for item in seen], seen, min(LASTING, len(seen))) is not None:
        return verdict(
            "the embeddings of all images point the same way",
            [item.one_direction for item in seen],
            f"uniformity {last.uniformity:.2g}, where 0 is one direction and -4 an even spread",
        )
    if len(losses) > 1 and abs(losses[-1]) < SHRUNK * abs(losses[0]) and last.variance < SHRUNK * most:
        return verdict(
            "all embeddings shrink to one point, and the loss to nothing with them",
            [item.variance < SHRUNK * most for item in seen],
            f"variance {last.variance:.3g}, from {most:.3g}",
            f"loss {losses[-1]:.3g}, from {losses[0]:.3g}",
        )
    return None


def vanishing(seen: Sequence[Snapshot]) -> Verdict | None:
    norms = [item.norm for item in seen if item.norm is not None]
    if len(norms) < 2 or norms[-1] >= FADED * max(norms):
        return None
    return Verdict(
        "vanishing norm",
        f"Vanishing norm: embeddings are {norms[-1] / max(norms):.3g} times as long as they were.",
        (f"root mean square length {norms[-1]:.3g}, from {max(norms):.3g}",),
        "Lower weight_decay, or lr. Losses of cosines do not see lengths, but steps of a given size turn short "
        "embeddings further.",
    )


def guessing(metrics: Sequence[Metrics], guess: float | None) -> Verdict | None:
    losses = [line["loss"] for line in metrics if "loss" in line][-LASTING:]
    if guess is None or len(losses) < LASTING or min(losses) < (1 - SAYS_NOTHING) * guess:
        return None
    return Verdict(
        "guessing",
        f"Nothing is assigned: the loss, {losses[-1]:.4f}, is no better than equal shares for all prototypes.",
        (f"equal shares give {guess:.4f}; at the last {LASTING} looks it was not a part in a thousand below",),
        "Sharper targets (first_target_temperature and target_temperature against temperature), weaker augment.*, or a "
        "teacher that follows sooner (teacher_momentum=0.99).",
    )


def standing_still(metrics: Sequence[Metrics]) -> Verdict | None:
    losses = [line["loss"] for line in metrics if "loss" in line]
    if len(losses) <= LASTING or min(losses) != max(losses):
        return None
    return Verdict(
        "standing still",
        f"Nothing is learnt: the loss was {losses[0]:.4g} at every look.",
        (f"{len(losses)} looks, all of them alike to the last digit",),
        "See whether the objective depends on the embeddings; or raise lr.",
    )


def too_short(seen: Sequence[Snapshot], metrics: Sequence[Metrics]) -> Verdict | None:
    """Of a run; one spectrum alone, without metrics, is judged by what it shows."""
    if not metrics or len(seen) >= LASTING:
        return None
    last = seen[-1]
    return Verdict(
        "unknown", f"Too few steps to tell: effective rank {last.rank:.1f} of {last.dimension} after {last.step}."
    )


def dimensional_collapse(seen: Sequence[Snapshot], method: str, few_dimensions: str) -> Verdict | None:
    since = lasting([item.few_dimensions for item in seen], seen, min(LASTING, len(seen)))
    if since is None:
        return None
    first, last = seen[0], seen[-1]
    found = f"rank {last.rank:.1f} of {last.dimension}" + (f" since step {since}" if len(seen) > 1 else "")
    evidence = (
        f"effective rank {last.rank:.1f}" + (f", from {first.rank:.1f} at step {first.step}" if len(seen) > 1 else ""),
        f"{last.above} of {last.dimension} singular values are above 0.1 of the largest",
    )
    if few_dimensions:
        return Verdict(
            "few dimensions",
            f"Few dimensions, as this method leaves by design: {found}. {few_dimensions}",
            evidence,
            "For more dimensions choose another method, such as frossl or simclr.",
        )
    instead = others(method, "frossl", "vicreg", "barlow-twins")
    width = "End the projector with twice the batch size. " if method == "frossl" else ""
    return Verdict(
        "dimensional collapse",
        f"Dimensional collapse: {found}.",
        evidence,
        f"{width}Lower lr, or set clip=1; in predictive methods keep the stop-gradient, the predictor and the teacher; "
        f"or choose a method that asks for variance in every direction: {instead}.",
    )


def others(method: str, *names: str) -> str:
    """Methods to choose instead, of which the run's own is none."""
    return ", ".join(name for name in names if name != method)


def falling_probe(metrics: Sequence[Metrics], held_out: int | None) -> Verdict | None:
    looks = [line for line in metrics if "online_accuracy" in line]
    if len(looks) <= LASTING:
        return None
    best, last = max(looks, key=lambda line: line["online_accuracy"]), looks[-1]
    top = best["online_accuracy"]
    late = max(line["online_accuracy"] for line in looks[-LASTING:])
    if late >= top - max(PROBE_FALL, chance(top, late, held_out)):
        return None
    falls = last["loss"] < best["loss"]
    of_objective = (
        "The objective is served by something else than these classes: look at the augmented views (do they still show "
        "the class?), weaken augment.*, or train for fewer epochs."
    )
    of_steps = "Lower lr, a longer warm-up (warmup_epochs) or clip=1; in predictive methods keep the teacher."
    return Verdict(
        "falling probe",
        f"Features forget the classes{' while the loss falls' if falls else ''}: online accuracy "
        f"{100 * last['online_accuracy']:.1f} %, {100 * top:.1f} % at step {best['step']}.",
        (f"the loss went from {best['loss']:.4g} to {last['loss']:.4g} in that time",),
        of_objective if falls else of_steps,
    )


def chance(one: float, other: float, images: int | None) -> float:
    """What two accuracies may differ by without a cause."""
    return 0.0 if images is None else STANDARD_ERRORS * math.sqrt((one * (1 - one) + other * (1 - other)) / images)


def by_labels(verdict: Verdict, accuracies: Mapping[str, float], images: int | None) -> Verdict:
    """Where the test images have labels, accuracy has the last word: a rich spectrum may be one of noise.
    `accuracies`: of the linear probe, by representation, as they are tabled."""
    before = "before training" if "before training" in accuracies else "untrained"
    if verdict.bad or not {"trained", before} <= accuracies.keys():
        return verdict
    now, then = accuracies["trained"], accuracies[before]
    if now >= then - chance(now, then, images):
        return verdict
    return Verdict(
        "worse than before",
        f"Features are worse than before training: linear accuracy {100 * now:.1f} %, {100 * then:.1f} % before.",
        (f"of the spectrum alone: {verdict.sentence}", *verdict.evidence),
        "After few epochs that is common: train for longer. Else look at the report's curves: where ranks or online "
        "accuracy fell, lower lr, or choose another method.",
    )


def healthy(seen: Sequence[Snapshot], metrics: Sequence[Metrics]) -> Verdict:
    first, last = seen[0], seen[-1]
    evidence = [f"{last.above} of {last.dimension} singular values are above 0.1 of the largest"]
    if len(seen) > 1:
        evidence.append(f"effective rank {last.rank:.1f}, from {first.rank:.1f} at step {first.step}")
    losses = [line["loss"] for line in metrics if "loss" in line]
    if len(losses) > 1 and losses[-1] > losses[0]:
        evidence.append(
            f"the loss rose from {losses[0]:.4g} to {losses[-1]:.4g}: normal with a teacher, a queue or prototypes, "
            "whose targets move; elsewhere a lower lr may do better"
        )
    few = last.above <= FEW_ABOVE < last.dimension / 16
    found = "No collapse, though few directions dominate:" if few else "Healthy: no collapse,"
    return Verdict("healthy", f"{found} effective rank {last.rank:.1f} of {last.dimension}.", tuple(evidence))


def lasting(signs: Sequence[bool], seen: Sequence[Snapshot], least: int) -> int | None:
    """The step since which a sign is there without a break up to now, for at least so many snapshots."""
    length = 0
    for sign in reversed(signs):
        if not sign:
            break
        length += 1
    return seen[-length].step if length >= max(least, 1) else None
