"""IsoLoss: every claim holds, a broken loss or predictor fails at least one, and the figures are drawn."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from twofold import models, objectives
from twofold.types import LossTerms
from twofold_papers.isoloss import figures as isoloss_figures
from twofold_papers.verify.claim import Claim, check, claims
from twofold_papers.verify.figure import Figure, figures

CLAIMS = claims("isoloss")
QUICK = [made for made in CLAIMS if not made.number.startswith(("Table", "Figure"))]
ASYMMETRIC, ISOLOSS, PREDICTOR = objectives.asymmetric, objectives.isoloss, models.DirectPredictor


@pytest.mark.parametrize("made", CLAIMS, ids=lambda made: made.number)
def test_claim_holds(made: Claim) -> None:
    assert check(made).verdict == made.expected


def scaled(function: Callable[..., LossTerms], factor: float) -> Callable[..., LossTerms]:
    return lambda *args, **kwargs: LossTerms(factor * function(*args, **kwargs).total, {})


def only(
    distance: str, function: Callable[..., LossTerms], broken: Callable[..., LossTerms]
) -> Callable[..., LossTerms]:
    """`broken` for one distance, `function` for the other."""
    return lambda *args, **kwargs: (broken if kwargs["distance"] == distance else function)(*args, **kwargs)


def ignoring_stop(z: Tensor, target: Tensor, matrix: Tensor | None = None, **kwargs: object) -> LossTerms:
    return ASYMMETRIC(z, target, matrix, **kwargs | {"stop_gradient": False})


def always_stopped(z: Tensor, target: Tensor, matrix: Tensor | None = None, **kwargs: object) -> LossTerms:
    return ASYMMETRIC(z, target, matrix, **kwargs | {"stop_gradient": True})


def without_predictor(z: Tensor, target: Tensor, *_: Tensor | None, **kwargs: object) -> LossTerms:
    return ASYMMETRIC(z, target, None, **kwargs)


def unnormalised(z: Tensor, target: Tensor, matrix: Tensor | None = None, **kwargs: bool) -> LossTerms:
    prediction = z if matrix is None else z @ matrix
    return LossTerms(-(prediction * (target.detach() if kwargs["stop_gradient"] else target)).sum(-1).mean(), {})


def target_unnormalised(z: Tensor, target: Tensor, matrix: Tensor | None = None, **kwargs: bool) -> LossTerms:
    prediction = z if matrix is None else z @ matrix
    met = target.detach() if kwargs["stop_gradient"] else target
    return LossTerms(-((prediction * met).sum(-1) / prediction.norm(dim=-1)).mean(), {})


def through_predictor(z: Tensor, target: Tensor, matrix: Tensor, **kwargs: object) -> LossTerms:
    return ASYMMETRIC(z, target, matrix, **kwargs)


class Centred(PREDICTOR):
    def update(self, z: Tensor) -> None:
        super().update(z - z.mean(dim=(0, 1)))


class Normalised(PREDICTOR):
    def __init__(self, dim: int, exponent: float, **kwargs: object) -> None:
        super().__init__(dim, exponent, **kwargs | {"normalize": True})


class OtherExponent(PREDICTOR):
    def __init__(self, dim: int, exponent: float, **kwargs: object) -> None:
        super().__init__(dim, 2 * exponent, **kwargs)


class Summed(PREDICTOR):
    def update(self, z: Tensor) -> None:
        super().update(z * (z.numel() / z.shape[-1]) ** 0.5)


MUTATIONS = {
    f"{name}, {distance}, {change}": (target, name, only(distance, function, broken))
    for distance in ("euclidean", "cosine")
    for target, name, function, change, broken in (
        (objectives, "asymmetric", ASYMMETRIC, "sign", scaled(ASYMMETRIC, -1)),
        (objectives, "asymmetric", ASYMMETRIC, "factor 2", scaled(ASYMMETRIC, 2)),
        (objectives, "asymmetric", ASYMMETRIC, "no stop-gradient", ignoring_stop),
        (objectives, "asymmetric", ASYMMETRIC, "always stopped", always_stopped),
        (objectives, "asymmetric", ASYMMETRIC, "no predictor", without_predictor),
        (objectives, "isoloss", ISOLOSS, "sign", scaled(ISOLOSS, -1)),
        (objectives, "isoloss", ISOLOSS, "factor 2", scaled(ISOLOSS, 2)),
        (objectives, "isoloss", ISOLOSS, "through the predictor", through_predictor),
    )
} | {
    "asymmetric, cosine, no norms": (objectives, "asymmetric", only("cosine", ASYMMETRIC, unnormalised)),
    "asymmetric, cosine, target's norm": (objectives, "asymmetric", only("cosine", ASYMMETRIC, target_unnormalised)),
    "predictor, centred": (models, "DirectPredictor", Centred),
    "predictor, normalised": (models, "DirectPredictor", Normalised),
    "predictor, exponent": (models, "DirectPredictor", OtherExponent),
    "predictor, summed": (models, "DirectPredictor", Summed),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_broken_library_fails_a_claim(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTATIONS[mutation])
    assert any(check(made).verdict == "FAILS" for made in QUICK)


@pytest.mark.parametrize("made", figures("isoloss"), ids=lambda made: made.number)
def test_figure_draws(made: Figure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isoloss_figures, "STEPS", 4)  # tests the panels, not the curves
    state = torch.get_rng_state()
    drawing = made.draw()
    assert all(ax.has_data() for ax in drawing.axes)
    assert torch.equal(torch.get_rng_state(), state)
