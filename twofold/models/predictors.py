"""Predictors that are computed instead of trained. Rows are samples: z[N, D]."""

import math
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from twofold.errors import TwofoldError
from twofold.linalg import largest_eigenvalue, symmetric_power


class DirectPredictor(nn.Module):
    """A linear predictor computed from the correlation C = U S Uᵀ of its inputs (DirectPred, Tian et al. 2021).

    W_P = U (S/max S + ε)^α Uᵀ, where C ← τC + (1−τ) ZᵀZ/B is a running correlation of training batches, not centred.
    Call `update` with a batch before you use `matrix`. With α = ½ or 1, the host never waits for the device. With other
    exponents, it waits.

    Parameters
    ----------
    dim : int
        The number D of dimensions of the embeddings.
    exponent : float
        The exponent α: ½ for DirectPred, 1 for DirectCopy.
    momentum : float
        The momentum τ of C.
    normalize : bool
        Divide C by its largest eigenvalue.
    epsilon : float
        The constant ε; 0.25 for DirectCopy.
    corrected : bool
        Correct C for its initial value 0. This has an effect only if `normalize` is false.
    general : bool
        Take U and S from a solver for general matrices in float32 and keep their real parts, as in the code of
        IsoLoss's authors. Their U is orthogonal only if the eigenvalues differ, so W_P is another matrix if C lacks
        rank. The host waits for the device.

    Examples
    --------
    >>> predictor = DirectPredictor(dim=32)
    >>> predictor.update(z)
    >>> loss = asymmetric(z[0], z[1], predictor.matrix())
    """

    correlation: Tensor
    weight: Tensor

    def __init__(
        self,
        dim: int,
        exponent: float = 0.5,
        momentum: float = 0.998,
        normalize: bool = True,
        epsilon: float = 0.0,
        corrected: bool = False,
        general: bool = False,
    ):
        super().__init__()
        if not (0 <= exponent < math.inf and 0 <= epsilon < math.inf and 0 <= momentum < 1):  # also refuses NaN
            raise TwofoldError(
                f"DirectPredictor has exponent={exponent:g}, epsilon={epsilon:g}, momentum={momentum:g}: "
                "give an exponent and an epsilon of at least 0, and a momentum from 0 to below 1"
            )
        self.dim, self.momentum = dim, momentum
        self.exponent, self.normalize, self.epsilon, self.corrected = exponent, normalize, epsilon, corrected
        self.general = general
        self._prepared: Tensor | None = None
        self.dtype = torch.float32  # of the embeddings, and so of the matrix
        # float64, because the square root of a singular C amplifies rounding: an error of 1e-8 in C is 1e-4 in W_P.
        self.register_buffer("correlation", torch.zeros(dim, dim, dtype=torch.float64))
        self.register_buffer("weight", torch.zeros(()))  # total weight of the batches in C: 1 − τ^updates

    @torch.no_grad()
    def update(self, z: Tensor) -> None:
        """Add the embeddings z[..., D] of one training step, of all views, to C."""
        if z.shape[-1] != self.dim or z.numel() == 0:
            raise TwofoldError(f"DirectPredictor got embeddings of shape {list(z.shape)}: give rows of dim={self.dim}")
        self.dtype = torch.promote_types(z.dtype, torch.float32)
        rows = z.reshape(-1, self.dim).to(self.correlation.device).double()
        share = 1 - self.momentum
        self.correlation.mul_(self.momentum).add_(rows.T @ rows, alpha=share / len(rows))
        self.weight.mul_(self.momentum).add_(share)

    def prepare(self, z: Tensor) -> None:
        """Call `update` and compute the matrix for `prepared`, at a time when the device has little else to do."""
        self.update(z)
        self._prepared = self.matrix()

    def prepared(self) -> Tensor:
        """Return the matrix of the last `prepare`, or the current matrix if `prepare` was never called."""
        return self.matrix() if self._prepared is None else self._prepared

    @torch.no_grad()
    def matrix(self) -> Tensor:
        """Return W_P[D, D], symmetric and without gradient. Before the first update, it is the identity.

        With `general`, it is symmetric up to rounding errors.
        """
        correlation = self.correlation
        tiny = torch.finfo(correlation.dtype).tiny
        if self.corrected:
            correlation = correlation / self.weight.to(correlation).clamp_min(tiny)
        identity = torch.eye(self.dim, dtype=correlation.dtype, device=correlation.device)
        if self.general:
            power = self._general_power(correlation)
        else:
            if self.normalize:
                correlation = correlation / largest_eigenvalue(correlation).clamp_min(tiny)
            power = symmetric_power(correlation + self.epsilon * identity, self.exponent)
        dtype = torch.promote_types(self.weight.dtype, self.dtype)
        return torch.where(self.weight > 0, power.to(self.weight.device, dtype), identity.to(self.weight.device, dtype))

    def _general_power(self, correlation: Tensor) -> Tensor:
        """Re(U) (Re(S)/max S + ε)^α Re(U)ᵀ from a solver for general matrices."""
        values, vectors = torch.linalg.eig(correlation.float().cpu())
        values, vectors = values.real.clamp_min(0), vectors.real
        if self.normalize:
            values = values / values.max().clamp_min(torch.finfo(values.dtype).tiny)
        return (vectors * (values + self.epsilon).pow(self.exponent)) @ vectors.T

    def forward(self, z: Tensor) -> Tensor:
        """Return W_P z for each row of z[..., D]."""
        return z @ self.matrix().T.to(z.dtype)

    @torch.no_grad()
    def spectrum(self) -> Tensor:
        """Return the eigenvalues [D] of E[zzᵀ], descending, in float64 on the CPU. The host waits for the device.

        The result does not depend on C's initial value 0.
        """
        weight = self.weight.cpu().double().clamp_min(torch.finfo(torch.float64).tiny)
        return torch.linalg.eigvalsh(self.correlation.cpu()).flip(0).clamp_min(0) / weight

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Let `to`, `half` and similar methods move C but keep its float64; with MPS it stays on the CPU."""
        correlation, self.correlation = self.correlation, self.correlation.float()
        super()._apply(fn, recurse)
        device = self.correlation.device
        self.correlation = correlation.to("cpu" if device.type == "mps" else device)
        return self
