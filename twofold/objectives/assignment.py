"""Assignment objectives: assign each image to its own class (DIET, S-DIET) or to prototypes (SwAV, DINO).

Shapes: N samples, D dimensions, R classifier rows in use, n classes in total, V views, T targets (for the first T
views), P prototypes, Q queue entries.
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
    """Cross entropy over the given classifier rows only (S-DIET eq 5).

    Pass the rows of the batch for S-DIET, or all rows of the classifier for DIET.

    Parameters
    ----------
    z : Tensor [..., N, D]
        Embeddings. Sample `i` belongs to the class `rows[labels[i]]`.
    rows : Tensor [R, D]
        Classifier rows, one for each class.
    labels : Tensor [N], int64
        Positions in `rows`.
    label_smoothing : float
        Share of the target, from 0 to 1, that is spread evenly over all classes.
    population : int, optional
        Number n of all classes. If given, the loss estimates the cross entropy over all n classes from these R rows
        (sampled softmax). Each negative then stands for (n−1)/(R−1) classes. In the softmax, log((n−1)/(R−1)) is added
        to its logit; with label smoothing, its target is label_smoothing/n · (n−1)/(R−1). With R = n this is the
        ordinary cross entropy.

    Returns
    -------
    LossTerms
        The mean over samples, with the term `cross_entropy`.
    """
    if not 0 <= label_smoothing <= 1:
        raise TwofoldError(f"label_smoothing={label_smoothing} is out of range: use a number from 0 to 1")
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
        # `gather` raises if a label is not a position in `rows`, for example the index of the image instead.
        expected = (1 - label_smoothing + spread) * logits.gather(-1, labels)[..., 0] + spread * copies * others
        normaliser = torch.where(own, logits, logits + math.log(copies)).logsumexp(dim=-1)
        total = (normaliser - expected).mean()
    return LossTerms(total, {"cross_entropy": total.detach()})


@full_precision
def squared_error(z: Tensor, rows: Tensor, labels: Tensor) -> LossTerms:
    """MSE-DIET (S-DIET, section 4): ½‖W z − e_y‖², where e_y is the one-hot vector of the sample's class y.

    Pass normalised embeddings for the normalised loss of section 5.

    Parameters
    ----------
    z : Tensor [..., N, D]
        Embeddings. Sample `i` belongs to the class `rows[labels[i]]`.
    rows : Tensor [R, D]
        W: the classifier rows, one for each class.
    labels : Tensor [N], int64
        Positions in `rows`.

    Returns
    -------
    LossTerms
        The mean over samples, with the term `squared_error`.
    """
    outputs = z @ rows.T
    own = labels.expand(outputs.shape[:-1])[..., None]
    missing = outputs.scatter_add(-1, own, outputs.new_full((), -1.0).expand(own.shape))  # W z − e_y
    total = 0.5 * missing.square().sum(dim=-1).mean()
    return LossTerms(total, {"squared_error": total.detach()})


class _CrossEntropy(torch.autograd.Function):
    """The mean of −Σ_r t_r log p_r with t = (1−s)·onehot + s/R, and log p. The gradient is p − t.

    It needs fewer passes over the logits than PyTorch's cross entropy, and saves only log p for the backward pass.
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
        if by_surprise is not None:  # only in a second derivative, which differentiates through log p
            by_logits = by_logits + by_surprise - p * by_surprise.sum(dim=1, keepdim=True)
        return by_logits, None, None


def _copies(rows: int, population: int | None) -> float:
    """How many classes each negative stands for."""
    if population is None or population == rows:
        return 1.0
    if population < rows or rows < 2:
        raise TwofoldError(
            f"population={population} does not fit {rows} rows: give 2 rows or more, and a population of at least that"
        )
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
    """SwAV (Caron et al. 2020): predict the code of one view from the scores of another.

    The loss is −Σ_p q_t log softmax(s_v/τ), averaged over samples and ordered pairs of views t ≠ v. The codes q_t of a
    view assign its samples to the prototypes in equal shares (Sinkhorn–Knopp on s_t/ε). They have no gradient.

    Parameters
    ----------
    scores : Tensor [V, N, P]
        Cosines between embeddings and prototypes.
    queue : Tensor [Q, P], optional
        Scores of earlier embeddings, added to the samples when codes are computed.
    queue_weights : Tensor [Q], optional
        Weight of each queue entry; a sample has weight 1, and so has an entry by default.
    targets : int, optional
        Only the first `targets` views give codes. Default: all.
    temperature : float
        τ of the softmax.
    epsilon : float
        ε of the Sinkhorn–Knopp algorithm.
    iterations : int
        Iterations of the Sinkhorn–Knopp algorithm.

    Returns
    -------
    LossTerms
        With the term `swav`.
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
    """DINO (Caron et al. 2021): match the student's distribution over prototypes to the teacher's.

    The loss is −Σ_p softmax((t − c)/τ_t) log softmax(s/τ), averaged over samples and ordered pairs of different views.
    Subtracting the centre c keeps one prototype from dominating; the lower temperature τ_t keeps the targets from
    becoming uniform.

    Parameters
    ----------
    scores : Tensor [V, N, P]
        The student's scores s.
    target : Tensor [T, N, P]
        The teacher's scores t of the first T views; no gradient flows through them.
    centre : Tensor [P]
        Running mean c of the teacher's scores.
    temperature : float
        The student's temperature τ.
    target_temperature : float or Tensor []
        The teacher's temperature τ_t.

    Returns
    -------
    LossTerms
        With the term `dino`.
    """
    check_targets("dino", scores, target)
    check_positive("dino", temperature=temperature)
    if not isinstance(target_temperature, Tensor):
        check_positive("dino", target_temperature=target_temperature)
    return _agreement("dino", ((target.detach() - centre) / target_temperature).softmax(dim=-1), scores / temperature)


def _agreement(name: str, targets_TNP: Tensor, logits_VNP: Tensor) -> LossTerms:
    """Cross entropy, averaged over samples and ordered pairs of different views.

    Each view is compared with the sum of all other views' targets, so its logits are read once.
    """
    T, V, N = len(targets_TNP), len(logits_VNP), logits_VNP.shape[1]
    everybody = targets_TNP.sum(dim=0)
    others_VNP = torch.cat([everybody - targets_TNP, everybody.expand(V - T, -1, -1)])
    total = -(others_VNP * logits_VNP.log_softmax(dim=-1)).sum() / (T * (V - 1) * N)
    return LossTerms(total, {name: total.detach()})
