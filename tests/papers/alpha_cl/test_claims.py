"""The claims of α-CL hold, they fail if the library is broken, and its figures are drawn."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure

from twofold import objectives
from twofold.types import LossTerms
from twofold_papers.alpha_cl import figures as alpha_cl_figures
from twofold_papers.alpha_cl.claims import linear, norms
from twofold_papers.alpha_cl.claims.nets import smallest_on_simplex
from twofold_papers.verify.claim import Claim, check, claims
from twofold_papers.verify.figure import figures

CLAIMS = claims("alpha-cl")
FAMILIES = {
    "infonce": "InfoNCE",
    "mine": "MINE",
    "triplet": "Triplet",
    "soft_triplet": "Soft Triplet",
    "tuplet": "N+1 Tuplet",
    "lifted": "Lifted Structured",
    "modified_triplet": "Modified Triplet",
    "linear": "Triplet Contrastive (linear)",
}


def numbered(number: str) -> Claim:
    (found,) = (made for made in CLAIMS if made.number == number)
    return found


@pytest.mark.parametrize("made", CLAIMS, ids=lambda made: made.number)
def test_claim(made: Claim) -> None:
    checked = check(made)
    assert checked.verdict == made.expected, checked.error


def test_numbers_are_unique() -> None:
    assert len({made.number for made in CLAIMS}) == len(CLAIMS)


def of_total(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    """A mutation of an objective that changes its total."""
    return lambda right: lambda *args, **kwargs: LossTerms(change(right(*args, **kwargs).total), {})


def of_value(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    return lambda right: lambda *args, **kwargs: change(right(*args, **kwargs))


def doubled_temperature(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: right(*args, **{**kwargs, "temperature": 2 * kwargs["temperature"]})


def without_positives(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, x_positive, alpha: right(x, x, alpha)  # noqa: ARG005


def negatives_once(right: Callable[..., Any]) -> Callable[..., Any]:
    """The transposed α, as if the weight of a pair belonged to the other row."""
    return lambda x, x_positive, alpha: right(x, x_positive, alpha.mT)


def always_through(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda z, rule: right(z, rule, through_importance=True)


def without_epsilon(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda z, temperature, epsilon=1.0: right(z, temperature, 0.0)  # noqa: ARG005


MUTATIONS = [
    ("contrastive", of_total(torch.neg), "Theorem 1, InfoNCE"),
    ("contrastive", of_total(lambda x: 2 * x), "eq 1"),
    ("contrastive", of_total(lambda x: -x), "Lemma 1"),
    ("contrastive", of_total(lambda x: x.detach() + 0 * x), "Lemma 4, eqs 51-52"),
    ("importance_of", of_value(lambda x: 2 * x), "eq 4"),
    ("importance_of", of_value(lambda x: x.mT), "Theorem 2, MINE"),
    ("importance_of", of_value(lambda x: x / x.sum(dim=1, keepdim=True)), "Theorem 1, N+1 Tuplet"),
    ("importance_of", of_value(torch.neg), "eq 4, sign"),
    ("energy", of_value(torch.neg), "Theorem 1, Triplet"),
    ("energy", of_value(lambda x: x / 2), "eqs 18-20"),
    ("energy", without_positives, "Corollary 1"),
    ("energy", negatives_once, "Theorem 1, Lifted Structured"),
    ("energy", without_positives, "Theorem 4"),
    ("contrastive_covariance", without_positives, "eq 5"),
    ("contrastive_covariance", negatives_once, "Lemma 4, eq 47"),
    ("contrastive_covariance", of_value(lambda x: x / 2), "section 4, PCA"),
    ("contrastive_covariance", of_value(torch.neg), "Lemma 14"),
    ("importance", doubled_temperature, "section 6, entropy"),
    ("importance", doubled_temperature, "section 6, inverse"),
    ("importance", doubled_temperature, "section 6, square"),
    ("importance", doubled_temperature, "eqs 12, 45"),
    ("importance", of_value(lambda x: x / x.sum(dim=1, keepdim=True)), "eq 44"),
    ("alpha_cl", of_total(torch.neg), "Definition 1"),
    ("alpha_cl", always_through, "Definition 1"),
    ("info_nce", of_total(lambda x: 2 * x), "eq 2, SimCLR"),
    ("info_nce", without_epsilon, "eq 2, SimCLR"),
]


@pytest.mark.parametrize("name, mutation, number", MUTATIONS, ids=lambda part: part if isinstance(part, str) else "")
def test_a_broken_objective_fails_the_claim(
    name: str, mutation: Any, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objectives, name, mutation(getattr(objectives, name)))
    assert check(numbered(number)).verdict == "FAILS"


@pytest.mark.parametrize("name", FAMILIES)
def test_a_broken_loss_family_fails_its_claims(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = objectives.family

    def broken(wanted: str, **parameters: float) -> Any:
        found = right(wanted, **parameters)
        return replace(found, rate=1.1 * found.rate) if wanted == name else found

    monkeypatch.setattr(objectives, "family", broken)
    for number in ("eq 1", "eq 4", f"Theorem 1, {FAMILIES[name]}"):
        assert check(numbered(number)).verdict == "FAILS"


def test_broken_normalisations_fail_their_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """A norm that is constant in the gradient, and a BatchNorm that does not centre."""

    def fixed_norm(x: torch.Tensor) -> torch.Tensor:
        return x / x.norm(dim=-1, keepdim=True).detach()

    monkeypatch.setitem(norms.NORMS, "ℓ2", fixed_norm)
    monkeypatch.setattr(norms, "normalized", fixed_norm)
    monkeypatch.setattr(norms.BatchNorm, "_norm", lambda self, x: x / x.norm(dim=0).detach())  # noqa: ARG005
    for number in ("Lemma 2", "Lemma 7", "Lemma 6, backward", "Lemma 6, forward", "Lemma 10", "eq 82"):
        assert check(numbered(number)).verdict == "FAILS"


def test_a_biased_covariance_fails_its_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "covariance", lambda x: torch.cov(x.mT, correction=0))
    assert check(numbered("section 4, PCA")).verdict == "FAILS"


def test_the_solver_finds_a_minimum_known_by_hand() -> None:
    """Σ c_j a_j + ½ Σ a_j² on Σ a = 1 for c = (0, 0.2, 5): a = (0.6, 0.4, 0)."""
    found = smallest_on_simplex(
        torch.tensor([[0.0, 0.2, 5.0]], dtype=torch.float64),
        lambda a: -a.square() / 2,
        torch.ones(1, dtype=torch.float64),
    )
    torch.testing.assert_close(found, torch.tensor([[0.6, 0.4, 0.0]], dtype=torch.float64), atol=1e-11, rtol=0)


@pytest.mark.parametrize("number", ["Figure 2", "Figure 3"])
def test_figure_draws(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alpha_cl_figures, "STRENGTHS", [0.3, 1.0])  # fewer networks, to be fast
    monkeypatch.setattr(alpha_cl_figures, "TRIALS", 40)
    (made,) = (made for made in figures("alpha-cl") if made.number == number)
    drawing = made.draw()
    assert isinstance(drawing, Figure)
    panels = [axes for axes in drawing.axes if axes.get_label() != "<colorbar>"]
    assert len(panels) == {"Figure 2": 2, "Figure 3": 7}[number]
    assert all(axes.has_data() and axes.get_xlabel() and axes.get_ylabel() for axes in panels)
