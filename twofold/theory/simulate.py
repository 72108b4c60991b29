"""A small laboratory: what an objective does to the eigenvalues of the embeddings, for any small network.

V views, N samples, D dimensions of the embedding, T recorded steps.
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
    """What was seen before the first step, at the recorded steps, and after the last."""

    steps: Tensor  # int64 [T]
    losses: Tensor  # [T]
    eigenvalues: Tensor  # [T, D], descending: of the covariance of the rows of all views, over V·N
    predictor_eigenvalues: Tensor | None = None  # [T, D], descending: of a predictor in closed form


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

    `objective` is called with z[V, N, D] and gives LossTerms or a scalar. `data` are views [V, N, ...], the same at
    every step, or a function of the step that gives them. The network itself is left as it was, so that several
    objectives can start alike.

    With a `predictor` each view predicts the next one, and the objective is called with (z, target, matrix) where it is
    a DirectPredictor, which is updated before it is used, and else with (predictor(z), target), where it is trained
    too; whatever stops the gradient is the objective's. The predictor is used in place, so that `before_step(step)` can
    read and change it.
    """
    if steps < 1 or every < 1:
        raise TwofoldError(f"simulate got steps={steps} and every={every}: give 1 or more of each")
    network = copy.deepcopy(network)
    trained = [*network.parameters(), *(predictor.parameters() if predictor is not None else ())]
    descent = optimizer(trained, lr=lr)
    seen: list[_Seen] = []
    for step in range(steps + 1):
        if before_step is not None:
            before_step(step)
        z = _embedded(network, data(step) if callable(data) else data)
        total = _loss(objective, z, predictor)
        if not torch.isfinite(total):
            raise TwofoldError(f"the loss is {total.item()} at step {step}: use an lr below {lr:g}, or start smaller")
        if step % every == 0 or step == steps:
            seen.append(_see(step, total, z, predictor))
        if step < steps:
            descent.zero_grad()
            total.backward()
            descent.step()
    recorded, losses, spectra, matrices = zip(*seen, strict=True)
    return Trajectory(
        torch.tensor(recorded),
        torch.stack(losses),
        torch.stack(spectra),
        torch.stack(matrices) if isinstance(predictor, DirectPredictor) else None,
    )


_Seen = tuple[int, Tensor, Tensor, Tensor | None]


def _embedded(network: nn.Module, views: Tensor) -> Tensor:
    if views.dim() < 3 or len(views) < 2:
        raise TwofoldError(f"data have shape {list(views.shape)}: give [views, samples, ...] with two views or more")
    z = torch.stack([network(view) for view in views])  # one at a time, as in training: BatchNorm sees one view
    if z.dim() != 3:
        raise TwofoldError(f"the network gives embeddings of shape {list(z.shape[1:])}: they must be [samples, dim]")
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
def _see(step: int, total: Tensor, z: Tensor, predictor: nn.Module | None) -> _Seen:
    rows = centred(z.detach().double().flatten(0, 1))
    spectrum = _eigenvalues(rows.T @ rows / len(rows)).clamp_min(0)
    matrix = predictor.matrix() if isinstance(predictor, DirectPredictor) else None
    return step, total.detach().double(), spectrum, None if matrix is None else _eigenvalues(matrix.double())


def _eigenvalues(matrix: Tensor) -> Tensor:
    return torch.linalg.eigvalsh(matrix).flip(0)
