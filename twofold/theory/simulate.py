"""Simulate how an objective changes the eigenvalues of the embeddings of a small network.

Shapes: V views, N samples, D dimensions of the embedding, T recorded steps.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from twofold.errors import TwofoldError
from twofold.linalg import centred
from twofold.models import DirectPredictor
from twofold.types import LossTerms

Objective = Callable[..., LossTerms | Tensor]
Data = Tensor | Callable[[int], Tensor]


@dataclass(frozen=True)
class Trajectory:
    """The result of `simulate`: the loss and the spectrum at the start, at the recorded steps and at the end.

    Attributes
    ----------
    steps : int64 Tensor [T]
        The number of completed steps at each record.
    losses : Tensor [T]
        The loss at each record.
    eigenvalues : Tensor [T, D]
        Eigenvalues, descending, of the covariance of the embeddings of all views (divided by V·N).
    predictor_eigenvalues : Tensor [T, D] or None
        Eigenvalues, descending, of the matrix of a DirectPredictor.
    """

    steps: Tensor
    losses: Tensor
    eigenvalues: Tensor
    predictor_eigenvalues: Tensor | None = None


def simulate(
    objective: Objective,
    network: nn.Module,
    data: Data,
    steps: int,
    *,
    lr: float = 0.1,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
    predictor: nn.Module | None = None,
    before_step: Callable[[int], None] | None = None,
    every: int = 1,
) -> Trajectory:
    """Train a copy of `network` and record the spectrum of its embeddings.

    The network itself does not change, so several objectives can start from the same weights.

    Parameters
    ----------
    objective : callable
        Called with the embeddings z[V, N, D]; returns LossTerms or a scalar. With a predictor, each view predicts the
        next one. The arguments are then (z, target, matrix) for a DirectPredictor, and (predictor(z), target) for other
        predictors. The objective decides whether the target gets a gradient.
    network : nn.Module
        Maps one view [N, ...] to embeddings [N, D].
    data : Tensor [V, N, ...] or callable
        The views, or a function of the step that returns them.
    steps : int
        Number of training steps.
    lr : float
        Learning rate.
    optimizer : callable
        A class of `torch.optim`, except LBFGS.
    predictor : nn.Module, optional
        A predictor, which is changed in place. `simulate` trains it with the network, but updates a DirectPredictor
        before each use instead.
    before_step : callable, optional
        Called with the number of each step before that step, and once after the last. It may change the predictor.
    every : int
        Record one of `every` steps.

    Returns
    -------
    Trajectory
        The recorded losses and eigenvalues.

    Examples
    --------
    >>> data = torch.randn(256, 20) + 0.1 * torch.randn(2, 256, 20)
    >>> trajectory = simulate(frossl, nn.Linear(20, 5), data, steps=200, lr=0.02)
    >>> trajectory.eigenvalues[-1]  # [5]
    """
    if steps < 1 or every < 1:
        raise TwofoldError(f"simulate got steps={steps} and every={every}: both must be at least 1")
    network = copy.deepcopy(network)
    trained = [*network.parameters(), *(predictor.parameters() if predictor is not None else ())]
    descent = optimizer(trained, lr=lr)
    records: list[_Record] = []
    for step in range(steps + 1):
        if before_step is not None:
            before_step(step)
        z = _embedded(network, data(step) if callable(data) else data)
        total = _loss(objective, z, predictor)
        if not torch.isfinite(total):
            raise TwofoldError(
                f"the loss is {total.item()} at step {step}: use an lr below {lr:g}, or smaller initial weights"
            )
        if step % every == 0 or step == steps:
            records.append(_record(step, total, z, predictor))
        if step < steps:
            descent.zero_grad()
            total.backward()
            descent.step()
    recorded, losses, spectra, matrices = zip(*records, strict=True)
    return Trajectory(
        torch.tensor(recorded),
        torch.stack(losses),
        torch.stack(spectra),
        torch.stack(matrices) if isinstance(predictor, DirectPredictor) else None,
    )


_Record = tuple[int, Tensor, Tensor, Tensor | None]


def _embedded(network: nn.Module, views: Tensor) -> Tensor:
    if views.dim() < 3 or len(views) < 2:
        raise TwofoldError(f"data have shape {list(views.shape)}: give [views, samples, ...] with two views or more")
    z = torch.stack([network(view) for view in views])  # one view at a time: BatchNorm then treats views separately
    if z.dim() != 3:
        raise TwofoldError(f"the network returned embeddings of shape {list(z.shape[1:])}: return [samples, dim]")
    return z


def _loss(objective: Objective, z: Tensor, predictor: nn.Module | None) -> Tensor:
    if predictor is None:
        return _total(objective(z))
    target = z.roll(-1, dims=0)
    if isinstance(predictor, DirectPredictor):
        predictor.update(z.detach())
        return _total(objective(z, target, predictor.matrix()))
    return _total(objective(torch.stack([predictor(view) for view in z]), target))


def _total(made: LossTerms | Tensor) -> Tensor:
    return made.total if isinstance(made, LossTerms) else made


@torch.no_grad()
def _record(step: int, total: Tensor, z: Tensor, predictor: nn.Module | None) -> _Record:
    rows = centred(z.detach().double().flatten(0, 1))
    spectrum = _eigenvalues(rows.T @ rows / len(rows)).clamp_min(0)
    matrix = predictor.matrix() if isinstance(predictor, DirectPredictor) else None
    return step, total.detach().double(), spectrum, None if matrix is None else _eigenvalues(matrix.double())


def _eigenvalues(matrix: Tensor) -> Tensor:
    return torch.linalg.eigvalsh(matrix).flip(0)
