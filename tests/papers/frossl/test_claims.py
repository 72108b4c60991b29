"""FroSSL's claims hold, and would not if the library were wrong; its figure draws."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor

from twofold import linalg, objectives
from twofold.types import LossTerms
from twofold_papers.frossl import figures as frossl_figures
from twofold_papers.verify.claim import Claim, check, claims
from twofold_papers.verify.figure import figures

CLAIMS = claims("frossl")
CORRECTED = 14


@pytest.mark.parametrize("made", CLAIMS, ids=lambda made: made.number)
def test_claim(made: Claim) -> None:
    checked = check(made)
    assert checked.verdict != "FAILS", (checked.error, checked.printed_error)


def test_claims_are_numbered_once_and_corrections_are_counted() -> None:
    assert len({made.number for made in CLAIMS}) == len(CLAIMS)
    assert sum(made.wrong_form is not None for made in CLAIMS) == CORRECTED


Function = Callable[..., Any]


def scaled(factor: float) -> Callable[[Function], Function]:
    """A value or a loss and its terms, times a factor."""

    def of(function: Function) -> Function:
        def broken(*args: Any, **kwargs: Any) -> Any:
            made = function(*args, **kwargs)
            if isinstance(made, Tensor):
                return factor * made
            return LossTerms(factor * made.total, {name: factor * term for name, term in made.terms.items()})

        return broken

    return of


def without(term: str) -> Callable[[Function], Function]:
    """The total lacks a term. It keeps its gradient: what is missing is the value."""

    def of(function: Function) -> Function:
        def broken(*args: Any, **kwargs: Any) -> LossTerms:
            made = function(*args, **kwargs)
            return dataclasses.replace(made, total=made.total - made.terms[term])

        return broken

    return of


def on_scaled_input(function: Function) -> Function:
    """As if it had forgotten to normalise, or normalised to something else."""
    return lambda z, *args, **kwargs: function(3 * z, *args, **kwargs)


def uncentred_moments(function: Function) -> Function:
    def broken(z: Tensor, **kwargs: Any) -> objectives.Moments:
        made = function(z, **kwargs)
        return dataclasses.replace(made, cross_VVD=made.cross_VVD + 1.0)

    return broken


def gradient_without_value(function: Function) -> Function:
    """The value is right, the gradient is half of it: what a wrong backward pass would look like."""

    def broken(*args: Any, **kwargs: Any) -> LossTerms:
        made = function(*args, **kwargs)
        return dataclasses.replace(made, total=made.total / 2 + made.total.detach() / 2)

    return broken


MUTANTS: list[tuple[Any, str, Callable[[Function], Function]]] = [
    *[(objectives, name, scaled(factor)) for name in ("frossl", "barlow_twins", "corinfomax") for factor in (-1, 2)],
    *[(objectives, "frossl", without(term)) for term in ("variance", "invariance")],
    *[(objectives, "barlow_twins", without(term)) for term in ("invariance", "redundancy")],
    *[(objectives, "corinfomax", without(term)) for term in ("invariance", "information")],
    (objectives, "frossl", gradient_without_value),
    (objectives, "corinfomax", on_scaled_input),
    (objectives, "frossl_of_moments", scaled(2)),
    (objectives, "moments", uncentred_moments),
    *[
        (linalg, name, scaled(factor))
        for name in ("gram_norm_squared", "off_diagonal_norm_squared", "distance_from_orthonormal")
        for factor in (-1, 2)
    ],
    (linalg, "gram_norm_squared", on_scaled_input),
    (linalg, "off_diagonal_norm_squared", on_scaled_input),
    (linalg, "distance_from_orthonormal", on_scaled_input),
    (linalg, "normalized", scaled(2)),
    (linalg, "sinkhorn", lambda _: lambda scores, _: torch.softmax(scores, dim=-1)),
]
# Cheap ones first, and no long simulation where an identity already tells.
QUICK = [made for made in CLAIMS if not made.number.startswith(("Proposition D", "eq 17", "section 5.1", "E.1"))]


@pytest.mark.parametrize("module, name, mutate", MUTANTS)
def test_a_broken_library_is_noticed(
    module: Any, name: str, mutate: Callable[[Function], Function], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, mutate(getattr(module, name)))
    assert any(check(made).verdict == "FAILS" for made in QUICK)


def test_figure_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frossl_figures, "STEPS", 150)  # the whole takes seconds
    (made,) = figures("frossl")
    drawing = made.draw()
    assert isinstance(drawing, Figure)
    assert len(drawing.axes) == 4
    assert all(line.get_xydata().shape[0] > 100 for axes in drawing.axes for line in axes.lines[:1])
