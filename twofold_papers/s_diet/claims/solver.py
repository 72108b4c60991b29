"""General solvers in float64. They do not use the theorems that the claims check."""

import torch
from torch import Tensor

from twofold_papers.verify.numerics import Loss, descended, gradient


def minimise(loss: Loss, *starts: Tensor, steps: int = 500) -> Tensor:
    """The best of the minima that L-BFGS finds from these starts."""
    reached = [descended(loss, start, steps=steps, flat=1e-11) for start in starts]
    return min(reached, key=lambda x: loss(x).item())


def stationary(loss: Loss, *starts: Tensor) -> list[Tensor]:
    """Critical points (minima and saddles) that Levenberg–Marquardt finds from these starts."""
    reached = [_levenberg_marquardt(loss, start) for start in starts]
    return [x for x in reached if gradient(loss, x).norm() < 1e-12]


def _levenberg_marquardt(loss: Loss, x: Tensor, steps: int = 60) -> Tensor:
    """Minimise ½‖∇loss‖². The result is a critical point of the loss, or only a local minimum of ‖∇loss‖."""
    damping, slope = 1.0, gradient(loss, x).flatten()
    for _ in range(steps):
        hessian = torch.autograd.functional.hessian(loss, x).reshape(x.numel(), x.numel())
        normal = hessian.T @ hessian
        while damping < 1e12:
            move = torch.linalg.solve(normal + damping * torch.eye(len(normal)).to(normal), hessian.T @ slope)
            tried = x - move.view_as(x)
            slope_tried = gradient(loss, tried).flatten()
            if slope_tried.norm() < slope.norm():
                x, slope, damping = tried, slope_tried, max(damping / 9, 1e-15)
                break
            damping *= 4
        if slope.norm() < 1e-14 or damping >= 1e12:
            break
    return x
