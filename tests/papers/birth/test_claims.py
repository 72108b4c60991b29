"""The claims of The birth of self-supervised learning hold, and they fail if the library is broken."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from twofold import linalg, objectives
from twofold.evaluate import closed_form
from twofold.objectives import relational
from twofold.types import LossTerms
from twofold_papers.birth.claims import digits
from twofold_papers.verify.claim import Claim, check, claims
from twofold_papers.verify.figure import figures

CLAIMS = claims("birth")
NUMBERED = {made.number: made for made in CLAIMS}
CORRECTED = {"A.2, line 1", "A.2, ∂D/∂σ", "Proposition 1", "B, line 3"}
CONDITIONAL = {
    "A.1, VᵀH = Vᵀ",
    "Lemma 1",
    "Lemma 1 (D ≥ 0)",
    "section 2.1, W",
    "Theorem 2",
    "Theorem 2 (growth)",
    "section 2.1, eigenvalues of G",
    "Corollary 1 (σ_k ≥ 1)",
    "section 2.1, sum over pairs",
    "B, last line",
}


@pytest.mark.parametrize("made", CLAIMS, ids=lambda made: made.number)
def test_claim(made: Claim) -> None:
    checked = check(made)
    expected = {**dict.fromkeys(CORRECTED, "holds as corrected"), **dict.fromkeys(CONDITIONAL, "holds conditionally")}
    assert checked.verdict == expected.get(made.number, "holds"), (
        f"error {checked.error}, of the published form {checked.published_error}"
    )


def test_numbers_are_unique() -> None:
    assert len(NUMBERED) == len(CLAIMS)


def times(factor: float) -> Callable[[Any], Any]:
    """A mutation: the result of the function, or the total of its loss, times a factor."""

    def broken(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrong(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            if isinstance(result, LossTerms):
                return replace(result, total=result.total * factor)
            return result * factor

        return wrong

    return broken


def does_nothing(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: x


def another_ridge(function: Callable[..., Any]) -> Callable[..., Any]:
    """λ instead of λN: the normalisation by the number of samples is missing."""
    return lambda features, relation, ridge: function(features, relation, ridge / len(features))


def without(term: str) -> Callable[[Any], Any]:
    def broken(function: Callable[..., LossTerms]) -> Callable[..., LossTerms]:
        def wrong(*args: Any, **kwargs: Any) -> LossTerms:
            result = function(*args, **kwargs)
            return replace(result, total=result.total - result.terms[term])

        return wrong

    return broken


def in_the_other_order(_: Callable[..., Any]) -> Callable[..., Any]:
    """The graph of views for rows ordered by sample instead of by view."""

    def wrong(samples: int, views: int, **kwargs: Any) -> torch.Tensor:
        image = torch.arange(samples * views) // views
        return (image[:, None] == image).to(kwargs.get("dtype") or torch.float32)

    return wrong


def without_weights(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda labels, weights=None: function(labels)  # noqa: ARG005


def without_diagonal(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(*args: Any, **kwargs: Any) -> torch.Tensor:
        graph = function(*args, **kwargs)
        return graph - torch.eye(len(graph), dtype=graph.dtype)

    return wrong


def squared(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: function(*args).square()


def reversed_order(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: function(*args).flip(0)


MUTATIONS = [
    (objectives, "ridge_labels", times(-1), "Theorem 1"),
    (objectives, "ridge_labels", times(2), "eq 1"),
    (relational, "centred", does_nothing, "Lemma 1"),
    (relational, "_best_head", times(1.01), "Lemma 1"),
    (objectives, "ridge_labels", another_ridge, "Lemma 1 (D)"),
    (objectives, "ridge_labels", times(2), "section 2.2, worst labelling"),
    (objectives, "ridge_labels", times(-1), "section 2.2, against class labels"),
    (objectives, "ridge_graph", times(-1), "Theorem 2"),
    (objectives, "ridge_graph", times(-1), "A.2, third observation"),
    (objectives, "ridge_graph", times(2), "Theorem 2 (growth)"),
    (relational, "centred", does_nothing, "eq 2"),
    (objectives, "ridge_graph", another_ridge, "eq 2"),
    (objectives, "ridge_graph", times(2), "Corollary 1 (minimum)"),
    (objectives, "w_mse", times(2), "Corollary 1 (Whitening-MSE)"),
    (objectives, "vicreg", without("invariance"), "Corollary 1 (VICReg)"),
    (objectives, "vicreg", times(2), "Corollary 1 (σ_k ≥ 1)"),
    (objectives, "graph_vicreg", times(-1), "section 2.1, trainable form"),
    (objectives, "graph_vicreg", without("alignment"), "section 2.1, trainable form"),
    (objectives, "graph_vicreg", without("orthogonality"), "section 2.1, sum over pairs"),
    (relational, "centred", does_nothing, "section 2.1, trainable form"),
    (objectives, "orthogonal_head", times(-1), "B (gradient)"),
    (objectives, "orthogonal_head", times(2), "B, last line"),
    (relational, "polar_factor", times(0.5), "B (minimum)"),
    (objectives, "view_graph", in_the_other_order, "Proposition 1"),
    (objectives, "view_graph", without_diagonal, "section 2.1, eigenvalues of G"),
    (objectives, "label_graph", without_weights, "Abstract, imbalance"),
    (objectives, "label_graph", without_diagonal, "Theorem 1 (G alone)"),
    (objectives, "balanced_weights", times(2), "Abstract, imbalance (balanced)"),
    (objectives, "group_graph", without_diagonal, "section 3, duplicates"),
    (linalg, "polar_factor", times(-1), "B, lines 4 and 5"),
    (linalg, "centred", does_nothing, "A.1, VᵀH = Vᵀ"),
    (closed_form, "whitening_weights", reversed_order, "eq 2 of a linear map, λ → 0"),
    (closed_form, "ridge_weights", squared, "eq 2 of a linear map, λ > 0"),
    (closed_form, "whitening_weights", reversed_order, "Corollary 1 of a linear map, W-MSE"),
    (closed_form, "threshold_weights", times(1.1), "Corollary 1 of a linear map, penalty"),
    (closed_form, "within_weights", times(1.1), "Corollary 1 of a linear map, log-determinant"),
]


@pytest.mark.parametrize("module, name, broken, number", MUTATIONS, ids=lambda value: getattr(value, "__name__", value))
def test_a_broken_library_fails_the_claim(
    module: Any, name: str, broken: Callable[[Any], Any], number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, broken(getattr(module, name)))
    checked = check(NUMBERED[number])
    assert checked.verdict == "FAILS"
    assert checked.error > checked.claim.tolerance  # the corrected form fails, not only the published one


@pytest.mark.parametrize("made", figures("birth"), ids=lambda made: made.number)
def test_figure(made: Any) -> None:
    before = torch.get_rng_state()
    drawing = made.draw()
    assert torch.equal(torch.get_rng_state(), before)
    assert len(drawing.axes) == 2
    for axes in drawing.axes:
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        assert all(len(line.get_xdata()) for line in axes.lines)
    if made.number == "Section 2.2 (reduced scale)":
        return
    # In the left panel, every line passes through its dots: theorem and autograd, eq 2 and the minimum of eq 1.
    lines = drawing.axes[0].lines[:8]
    for line, dots in zip(lines[::2], lines[1::2], strict=True):
        ys = dict(zip(line.get_xdata(), line.get_ydata(), strict=True))
        for x, y in zip(dots.get_xdata(), dots.get_ydata(), strict=True):
            assert float(ys[x]) == pytest.approx(float(y), abs=1e-9)


def test_each_label_is_part_of_a_class_and_the_finest_are_one_for_each_image(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []

    def network(inputs: torch.Tensor, labels: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        seen.append(labels)
        return inputs[:, :3]

    monkeypatch.setattr(digits, "small_network", network)
    for parts in digits.PARTS:
        digits.errors.__wrapped__(parts, 0)
    _, classes = digits.digit_views()
    for parts, labels in zip(digits.PARTS, seen, strict=True):
        first, second = labels.view(digits.VIEWS, -1)
        assert torch.equal(first, second), "both views of an image have its label"
        assert torch.equal(first // parts, classes)
        assert len(first.unique()) == digits.CLASSES * parts
    assert len(seen[-1].unique()) == len(classes)
