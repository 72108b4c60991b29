"""Assignment objectives: images meet classes, of which each image is its own, or prototypes that views agree on.

N samples, D dimensions, R rows of the head at hand, n rows in all; V views, the first T of them with targets,
P prototypes, Q entries of a queue.
"""

import math
from typing import Any

import torch
from torch import Tensor

from twofold.errors import TwofoldError
from twofold.linalg import full_precision, sinkhorn
from twofold.objectives.pairs import check_positive, check_targets
from twofold.types import LossTerms


@full_precision
def batch_cross_entropy(
    z: Tensor, rows: Tensor, labels: Tensor, *, label_smoothing: float = 0.8, population: int | None = None
) -> LossTerms:
    """S-DIET eq 5: cross entropy of z[..., N, D] over the classes rows[R, D] alone; z[i] belongs to rows[labels[i]].

    `population=n` estimates the cross entropy over all n classes, of which the rows are a sample that contains the
    batch's own (sampled softmax): a negative counts (n−1)/(R−1) times, in the sum of exponentials (there it is
    log((n−1)/(R−1)) on its logit) and in the smoothing, where its target is label_smoothing/n times that.
    With all n rows it is the cross entropy itself. `rows` may be the full head: plain DIET.
    """
    if not 0 <= label_smoothing <= 1:
        raise TwofoldError(f"label_smoothing={label_smoothing} is no share: use a number from 0 to 1")
    R = len(rows)
    copies = _copies(R, population)
    logits = z @ rows.T
    if copies == 1:
        labels = labels.expand(logits.shape[:-1])
        total, _ = _CrossEntropy.apply(logits.flatten(0, -2), labels.reshape(-1, 1), label_smoothing)
    else:
        labels = labels.expand(logits.shape[:-1])[..., None]
        own = labels == torch.arange(R, device=z.device)
        spread = label_smoothing / (population or R)
        others = torch.where(own, 0, logits).sum(dim=-1)
        # `gather`, which refuses a label that is no row: the sample's number, say, in place of its row's.
        expected = (1 - label_smoothing + spread) * logits.gather(-1, labels)[..., 0] + spread * copies * others
        normaliser = torch.where(own, logits, logits + math.log(copies)).logsumexp(dim=-1)
        total = (normaliser - expected).mean()
    return LossTerms(total, {"cross_entropy": total.detach()})


class _CrossEntropy(torch.autograd.Function):
    """The mean of −Σ_r t_r log p_r, t = (1−s)·label + s/R, whose gradient is p − t; and log p, all that it keeps.

    Fewer passes over the logits than torch's own.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        surprise = logits.log_softmax(dim=1)
        ctx.save_for_backward(labels, surprise)
        ctx.set_materialize_grads(False)
        ctx.smoothing = smoothing
        own = surprise.gather(1, labels).mean()
        return -torch.lerp(own, surprise.mean(), smoothing) if smoothing > 0 else -own, surprise

    @staticmethod
    def backward(ctx: Any, by_total: Tensor | None, by_surprise: Tensor | None) -> tuple[Tensor, None, None]:
        labels, surprise = ctx.saved_tensors
        count, R = surprise.shape
        scale = surprise.new_zeros(()) if by_total is None else by_total / count
        p = surprise.exp()
        by_logits = torch.addcmul(-ctx.smoothing / R * scale, p, scale)
        by_logits.scatter_add_(1, labels, ((ctx.smoothing - 1) * scale).expand(labels.shape))
        if by_surprise is not None:  # of a second derivative, which reads log p
            by_logits = by_logits + by_surprise - p * by_surprise.sum(dim=1, keepdim=True)
        return by_logits, None, None


def _copies(rows: int, population: int | None) -> float:
    """For how many classes each of the negatives stands."""
    if population is None or population == rows:
        return 1.0
    if population < rows or rows < 2:
        raise TwofoldError(f"population={population} must be at least the number of rows, which are {rows}, at least 2")
    return (population - 1) / (rows - 1)


@full_precision
def swav(
    scores: Tensor,
    queue: Tensor | None = None,
    queue_weights: Tensor | None = None,
    *,
    targets: int | None = None,
    temperature: float = 0.1,
    epsilon: float = 0.05,
    iterations: int = 3,
) -> LossTerms:
    """SwAV (Caron et al. 2020): −Σ_p q_t log softmax(s_v/τ), from scores[V, N, P], cosines with the prototypes.

    The codes q_t of a view share its samples equally among the prototypes (Sinkhorn–Knopp on s_t/ε), without gradient.
    Scores of a queue[Q, P] take part in that with `queue_weights`[Q] (default: 1, as much as a sample). The mean over
    samples and ordered pairs of views t ≠ v; only the first `targets` views (default: all) give codes.
    """
    check_targets("swav", scores, scores[:targets])
    check_positive("swav", temperature=temperature, epsilon=epsilon)
    with torch.no_grad():
        N = scores.shape[1]
        rows, weights = scores[:targets], None
        if queue is not None:
            rows = torch.cat([rows, queue.expand(len(rows), -1, -1)], dim=1)
        if queue is not None and queue_weights is not None:
            weights = torch.cat([queue_weights.new_ones(N), queue_weights])
        codes_TNP = sinkhorn(rows / epsilon, iterations, weights)[:, :N]
    return _agreement("swav", codes_TNP, scores / temperature)


@full_precision
def dino(
    scores: Tensor,
    target: Tensor,
    centre: Tensor,
    *,
    temperature: float = 0.1,
    target_temperature: float | Tensor = 0.07,
) -> LossTerms:
    """DINO (Caron et al. 2021): −Σ_p softmax((t − c)/τ_t) log softmax(s/τ), scores[V, N, P], the teacher's t[T, N, P].

    `centre`[P] keeps one prototype from taking all, the lower temperature of the targets keeps them from being uniform.
    The mean over samples and ordered pairs of different views.
    """
    check_targets("dino", scores, target)
    check_positive("dino", temperature=temperature)
    if not isinstance(target_temperature, Tensor):
        check_positive("dino", target_temperature=target_temperature)
    return _agreement("dino", ((target.detach() - centre) / target_temperature).softmax(dim=-1), scores / temperature)


def _agreement(name: str, targets_TNP: Tensor, logits_VNP: Tensor) -> LossTerms:
    """Cross entropy, the mean over samples and ordered pairs: each view meets the targets of all others at once."""
    T, V, N = len(targets_TNP), len(logits_VNP), logits_VNP.shape[1]
    everybody = targets_TNP.sum(dim=0)
    others_VNP = torch.cat([everybody - targets_TNP, everybody.expand(V - T, -1, -1)])
    total = -(others_VNP * logits_VNP.log_softmax(dim=-1)).sum() / (T * (V - 1) * N)
    return LossTerms(total, {name: total.detach()})
