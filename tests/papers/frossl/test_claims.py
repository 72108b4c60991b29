"""FroSSL: every claim holds, a broken library fails at least one, and the figure is drawn."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor

from twofold import linalg, objectives
from twofold.types import LossTerms
from twofold_papers.frossl import early, linear
from twofold_papers.frossl import figures as frossl_figures
from twofold_papers.verify.claim import Claim, check, claims
from twofold_papers.verify.figure import figures

CLAIMS = claims("frossl")
CORRECTED = 14


@pytest.mark.parametrize("made", CLAIMS, ids=lambda made: made.number)
def test_claim_holds(made: Claim) -> None:
    checked = check(made)
    assert checked.verdict != "FAILS", (checked.error, checked.published_error)


def test_claim_numbers_are_distinct_and_fourteen_claims_correct_the_paper() -> None:
    assert len({made.number for made in CLAIMS}) == len(CLAIMS)
    assert sum(made.published_form is not None for made in CLAIMS) == CORRECTED


Function = Callable[..., Any]


def scaled(factor: float) -> Callable[[Function], Function]:
    """Multiply the returned tensor, or the returned loss and its terms, by a factor."""

    def of(function: Function) -> Function:
        def broken(*args: Any, **kwargs: Any) -> Any:
            made = function(*args, **kwargs)
            if isinstance(made, Tensor):
                return factor * made
            return LossTerms(factor * made.total, {name: factor * term for name, term in made.terms.items()})

        return broken

    return of


def without(term: str) -> Callable[[Function], Function]:
    """Subtract the value of a term from the total. The gradient does not change, because terms are detached."""

    def of(function: Function) -> Function:
        def broken(*args: Any, **kwargs: Any) -> LossTerms:
            made = function(*args, **kwargs)
            return dataclasses.replace(made, total=made.total - made.terms[term])

        return broken

    return of


def on_scaled_input(function: Function) -> Function:
    """Pass three times the input, as if the function normalised it wrongly."""
    return lambda z, *args, **kwargs: function(3 * z, *args, **kwargs)


def uncentred_moments(function: Function) -> Function:
    def broken(z: Tensor, **kwargs: Any) -> objectives.Moments:
        made = function(z, **kwargs)
        return dataclasses.replace(made, cross_VVD=made.cross_VVD + 1.0)

    return broken


def gradient_without_value(function: Function) -> Function:
    """Return the right value with half the gradient, as a wrong backward pass would."""

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
# Without the slow simulations: the other claims detect every mutant.
QUICK = [made for made in CLAIMS if not made.number.startswith(("Proposition D", "eq 17", "section 5.1", "E.1"))]


@pytest.mark.parametrize("module, name, mutate", MUTANTS)
def test_a_broken_library_fails_a_claim(
    module: Any, name: str, mutate: Callable[[Function], Function], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, mutate(getattr(module, name)))
    assert any(check(made).verdict == "FAILS" for made in QUICK)


def test_figure_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frossl_figures, "STEPS", 150)  # all steps would take seconds
    monkeypatch.setattr(frossl_figures, "STEPS", 150)  # all steps would take seconds
    (made,) = (figure for figure in figures("frossl") if figure.number == "Figure 2")
    drawing = made.draw()
    assert isinstance(drawing, Figure)
    assert len(drawing.axes) == 4
    assert all(line.get_xydata().shape[0] > 100 for axes in drawing.axes for line in axes.lines[:1])


def test_figure_3_shows_both_versions_for_each_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early, "STEPS", 8)
    (made,) = (figure for figure in figures("frossl") if figure.number == "Figure 3 (reduced scale)")
    axes = made.draw().axes
    assert [one.get_title() for one in axes[: len(early.LOSSES)]] == list(early.LOSSES)
    assert all(len(one.lines) == 14 for one in axes)


def test_spectra_early_in_training_are_those_of_their_definitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start, before any step: correlations of the first view, and the covariance of both views together."""
    monkeypatch.setattr(early, "STEPS", 0)
    embedded: list[torch.Tensor] = []
    monkeypatch.setattr(early, "eigenvalues", lambda rows: embedded.append(rows) or original(rows))
    found = early.spectra(early.LOSSES["FroSSL"])
    assert found.normalised.shape == found.plain.shape == (1, early.DIM)
    one_view, both_views = embedded
    torch.testing.assert_close((one_view.T @ one_view).diagonal(), torch.ones(early.DIM).double())
    assert one_view.shape == (early.IMAGES, early.DIM)
    assert both_views.shape == (2 * early.IMAGES, early.DIM)
    torch.testing.assert_close(found.normalised.sum(), torch.tensor(1.0).double())
    expected = torch.linalg.svdvals(both_views).square()
    torch.testing.assert_close(found.plain[0], expected / expected.sum())


original = early.eigenvalues


def test_figure_2_on_images_shows_the_record() -> None:
    (made,) = (figure for figure in figures("frossl") if figure.number == "Figure 2 (CIFAR-10)")
    axes = made.draw().axes
    assert len(axes) == 8
    for column, (crops, variant) in enumerate(itertools.product(("mild", "strong"), ("frossl", "barlow"))):
        rows = linear.record().of(crops, variant)
        assert [row["seed"] for row in rows] == list(range(len(rows)))
        losses = axes[column].lines[0].get_ydata()
        assert losses == pytest.approx([loss / rows[0]["losses"][0] for loss in rows[0]["losses"]], rel=1e-6)
        mean = sum(row["10th eigenvalue"] for row in rows) / len(rows)
        assert f"{mean:.0f}" in made.caption
