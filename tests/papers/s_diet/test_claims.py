"""S-DIET's claims hold, fail when the code they rest on is broken, and its figures show what their captions say."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from twofold_papers.s_diet import figures as drawn
from twofold_papers.s_diet.claims import batch, critical, features, linear, normalised, optimizer
from twofold_papers.verify.claim import check, claims
from twofold_papers.verify.figure import figures

CLAIMS = claims("s-diet")
CORRECTED = [
    "A.2",
    "Theorem B.3 (only if)",
    "Lemma B.5 (1)",
    "Lemma B.5 (2)",
    "Lemma B.6",
    "Lemma B.6 (gradient)",
    "eq 17",
    "Theorem 5.1 (normalised), Lemma B.8",
    "eq 7",
    "eq 8",
]
CONDITIONAL = [
    "eq 2, by matrices",
    "eq 9",
    "Theorem B.1 (only if)",
    "Theorem B.1 (least value)",
    "Theorem B.1 (global)",
    "eq 10 and 11",
    "Section 5.2.2 (bias)",
    "section 5.2.1, loading",
]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.number)
def test_claims_hold(claim: Any) -> None:
    checked = check(claim)
    expected = {**dict.fromkeys(CORRECTED, "holds as corrected"), **dict.fromkeys(CONDITIONAL, "holds conditionally")}
    assert checked.verdict == expected.get(claim.number, "holds"), checked.error


def test_numbers_are_distinct() -> None:
    numbers = [claim.number for claim in CLAIMS]
    assert len(set(numbers)) == len(numbers)
    assert {*CORRECTED, *CONDITIONAL} <= set(numbers)


Broken = Callable[[Callable[..., Any]], Callable[..., Any]]


def with_total(change: Callable[[torch.Tensor], torch.Tensor]) -> Broken:
    def broken(whole: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            terms = whole(*args, **kwargs)
            return replace(terms, total=change(terms.total))

        return wrapper

    return broken


def with_arguments(**changed: Any) -> Broken:
    return lambda whole: lambda *args, **kwargs: whole(*args, **{**kwargs, **changed})


def flipped_momentum(whole: Callable[..., Any]) -> Callable[..., Any]:
    return lambda theta, m, *rest, **options: whole(theta, -m, *rest, **options)


def one_step_more(place: int) -> Broken:
    def broken(whole: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **options: whole(*args[:place], args[place] + 1, *args[place + 1 :], **options)

    return broken


class ForgetfulAdamW(optimizer.LazyAdamW):
    """Rows decay, and do not follow their momentum."""

    def catch_up(self, theta: Any, m: Any, v: Any, since: Any, step: int) -> Any:
        _, new_m, new_v = super().catch_up(theta, m, v, since, step)
        still, _, _ = super().catch_up(theta, torch.zeros_like(m), v, since, step)
        return still, new_m, new_v


MUTATIONS: list[tuple[Any, str, Broken, str]] = [
    (critical, "spectral_contrastive", with_total(lambda x: -x), "eq 2"),
    (critical, "spectral_contrastive", with_total(lambda x: 2 * x), "eq 2"),
    (critical, "spectral_contrastive", with_arguments(radius=1.0), "eq 2"),
    (linear, "orthogonal_head", with_total(lambda x: -x), "Theorem 4.3 (2)"),
    (linear, "orthogonal_head", with_total(lambda x: 2 * x), "Theorem B.3 (if)"),
    (linear, "orthogonal_head", with_total(lambda x: x + 0.01), "Theorem 4.3 (2)"),
    (normalised, "normalized", lambda whole: lambda x, *rest: 2 * whole(x, *rest), "A.3"),
    (normalised, "normalized", lambda _: lambda x, *_rest: x, "A.3"),
    (features, "normalized", lambda whole: lambda x, *rest: -whole(x, *rest), "Lemma B.8 (loss)"),
    (features, "normalized", lambda _: lambda x, *_rest: x / x.abs().sum(dim=-1, keepdim=True), "Lemma B.8 (loss)"),
    (batch, "batch_cross_entropy", with_total(lambda x: -x), "eq 5 (gradient)"),
    (batch, "batch_cross_entropy", with_total(lambda x: 2 * x), "eq 5 (gradient)"),
    (batch, "batch_cross_entropy", with_arguments(label_smoothing=0.0), "eq 5 (gradient)"),
    (batch, "batch_cross_entropy", with_arguments(population=None), "eq 5 (mean of it)"),
    (batch, "batch_cross_entropy", with_arguments(population=None), "eq 5 (in training)"),
    (
        batch,
        "batch_cross_entropy",
        lambda whole: lambda z, *rest, **named: whole(z + 0.1, *rest, **named),
        "eq 5, Table 2",
    ),
    (batch, "SampleHead", with_arguments(optimizer="adamw"), "section 5.2.1, loading"),
    (optimizer, "multistep_sgd", flipped_momentum, "eq 7"),
    (optimizer, "multistep_sgd", one_step_more(2), "eq 7"),
    (optimizer, "multistep_adamw", flipped_momentum, "eq 8"),
    (optimizer, "multistep_adamw", one_step_more(3), "Section 5.2.2 (multistep)"),
    (optimizer, "multistep_adamw", one_step_more(3), "Listing 1"),
    (optimizer, "LazyAdamW", lambda _: ForgetfulAdamW, "Section 5.2.2 (exact)"),
    (
        optimizer,
        "LazyAdamW",
        lambda whole: lambda schedule, _, *rest: whole(schedule, 0.0, *rest),
        "Section 5.2.2 (eps)",
    ),
]


@pytest.mark.parametrize(
    "module, name, broken, number", MUTATIONS, ids=lambda x: x if isinstance(x, str) else getattr(x, "__name__", "?")
)
def test_a_broken_function_fails_its_claim(
    module: Any, name: str, broken: Broken, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (claim,) = (claim for claim in CLAIMS if claim.number == number)
    assert check(claim).verdict != "FAILS"
    monkeypatch.setattr(module, name, broken(getattr(module, name)))
    assert check(claim).verdict == "FAILS"


def test_figures_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn.alignments, "__defaults__", (60,))
    found = figures("s-diet")
    assert [figure.number for figure in found] == ["Figure 1a", "Figure 1b"]
    for figure in found:
        (axes,) = figure.draw().axes
        assert [len(line.get_xdata()) for line in axes.lines] == [61, 61]
        assert all((line.get_ydata()[1:] > 0).all() for line in axes.lines)
        assert axes.get_xlabel()
        assert axes.get_legend() is not None


def test_only_normalised_diet_learns_the_noisy_feature() -> None:
    plain, normal = (drawn.alignments(normalise, steps=600)[-1] for normalise in (False, True))
    assert plain[1] / plain[0] < 0.05
    assert 0.9 < normal[1] / normal[0] < 1.1
