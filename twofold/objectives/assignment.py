"""Assignment objectives: every image is its own class, one row of a head per image.

N samples, D dimensions, R rows of the head at hand, n rows in all.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from twofold.errors import TwofoldError
from twofold.linalg import full_precision
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
    if copies == 1:  # torch's own makes a third of the passes over the logits
        labels = labels.expand(logits.shape[:-1])
        total = cross_entropy(logits.flatten(0, -2), labels.flatten(), label_smoothing=label_smoothing)
    else:
        own = labels[..., None] == torch.arange(R, device=z.device)
        spread = label_smoothing / (population or R)
        expected = torch.where(own, (1 - label_smoothing + spread) * logits, spread * copies * logits).sum(dim=-1)
        normaliser = torch.where(own, logits, logits + math.log(copies)).logsumexp(dim=-1)
        total = (normaliser - expected).mean()
    return LossTerms(total, {"cross_entropy": total.detach()})


def _copies(rows: int, population: int | None) -> float:
    """For how many classes each of the negatives stands."""
    if population is None or population == rows:
        return 1.0
    if population < rows or rows < 2:
        raise TwofoldError(f"population={population} must be at least the number of rows, which are {rows}, at least 2")
    return (population - 1) / (rows - 1)
