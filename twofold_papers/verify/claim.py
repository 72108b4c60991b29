"""Claims of the papers: what a paper states, and a function that computes both sides of it independently.

    @claim("frossl", "Proposition 3.1", "ZᵀZ and ZZᵀ have the same Frobenius norm. Checked: ...", tolerance=1e-12)
    def duality() -> Sides:
        ...
        return Sides(left, right)

If the formula in the paper is wrong, the claim states the corrected one. A second function computes the published form,
which must fail:

    @duality.published("The norms are equal without the square.")
    def _() -> Sides: ...

If the published form holds under one reasonable interpretation and fails under another, it is not called wrong. A third
function computes it under the interpretation in which it must hold:

    @duality.holds_if("the entries of Z are 0 or 1", fails_if="Z is any matrix")
    def _() -> Sides: ...
"""

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from twofold.device import one_thread
from twofold.errors import TwofoldError, nearest

PAPERS = {
    "s-diet": "S-DIET",
    "frossl": "FroSSL (Skean et al. 2024)",
    "birth": "The birth of self-supervised learning (Balestriero and LeCun 2024)",
    "alpha-cl": "α-CL (Tian 2022)",
    "isoloss": "IsoLoss (Halvagal et al. 2023)",
}
Relation = Literal["=", "≤", "≥", "<", ">"]
Verdict = Literal["holds", "holds as corrected", "holds conditionally", "FAILS"]


@dataclass(frozen=True)
class Sides:
    """Two values that must be equal, or satisfy the relation, in every element."""

    left: Tensor | float
    right: Tensor | float
    relation: Relation = "="

    def error(self) -> float:
        """The largest violation; it is divided by the largest absolute value on either side if that is above 1."""
        left, right = (torch.as_tensor(side, dtype=torch.float64) for side in (self.left, self.right))
        if not (torch.isfinite(left).all() and torch.isfinite(right).all()):
            return float("inf")
        scale = max(left.abs().max().item(), right.abs().max().item(), 1.0)
        apart = left - right
        match self.relation:
            case "=":
                wrong = apart.abs()
            case "≤" | "<":
                wrong = apart.clamp_min(0)
            case "≥" | ">":
                wrong = (-apart).clamp_min(0)
        if self.relation in "<>" and not ((apart < 0) if self.relation == "<" else (apart > 0)).all():
            return float("inf")  # a strict inequality has no tolerance
        return wrong.max().item() / scale


Compute = Callable[[], Sides]


@dataclass
class Claim:
    paper: str
    number: str  # the paper's numbering: "Theorem 4.3", "eq 12"
    statement: str  # what the paper claims; then "Checked: " and what is computed
    compute: Compute
    tolerance: float
    published_form: str | None = None  # what the paper states, if that differs from the statement
    compute_published: Compute | None = None
    condition: str | None = None  # the interpretation under which the published form holds
    failing_condition: str | None = None  # the interpretation under which it fails
    compute_conditional: Compute | None = None

    def published(self, statement: str) -> Callable[[Compute], "Claim"]:
        """Decorate the function that computes the published form, which must fail by more than the tolerance."""

        def attach(compute: Compute) -> Claim:
            self.published_form, self.compute_published = statement, compute
            return self

        return attach

    def holds_if(self, condition: str, *, fails_if: str) -> Callable[[Compute], "Claim"]:
        """Decorate the function that computes the published form under `condition`, where it must hold."""

        def attach(compute: Compute) -> Claim:
            self.condition, self.failing_condition, self.compute_conditional = condition, fails_if, compute
            return self

        return attach

    @property
    def expected(self) -> Verdict:
        """The verdict if everything that the claim says is true."""
        if self.compute_published is None:
            return "holds"
        return "holds as corrected" if self.compute_conditional is None else "holds conditionally"

    @property
    def id(self) -> str:
        return f"{self.paper}: {self.number}"


@dataclass(frozen=True)
class Checked:
    claim: Claim
    sides: Sides
    error: float
    verdict: Verdict
    seconds: float
    published_error: float | None = field(default=None)


_CLAIMS: list[Claim] = []


def claim(paper: str, number: str, statement: str, *, tolerance: float) -> Callable[[Compute], Claim]:
    assert paper in PAPERS

    def register(compute: Compute) -> Claim:
        made = Claim(paper, number, statement, compute, tolerance)
        _CLAIMS.append(made)
        return made

    return register


def claims(paper: str | None = None) -> list[Claim]:
    """The claims of one paper, or of all papers, in the order of the papers."""
    if paper is not None and paper not in PAPERS:
        raise TwofoldError(f"unknown paper '{paper}'{nearest(paper, list(PAPERS))}")
    for name in PAPERS:
        importlib.import_module(f"twofold_papers.{name.replace('-', '_')}.claims")
    wanted = list(PAPERS) if paper is None else [paper]
    return [made for name in wanted for made in _CLAIMS if made.paper == name]


def check(made: Claim) -> Checked:
    """Compute both sides with a fixed seed; the state of the caller's random numbers does not change."""
    start = time.perf_counter()
    with one_thread(), torch.random.fork_rng(devices=[]):
        sides = _seeded(made.compute)
        error, published_error = sides.error(), None
        is_true = error <= made.tolerance
        if made.compute_published is not None:  # if this form holds too, the claim that it fails is itself wrong
            published_error = _seeded(made.compute_published).error()
            is_true = is_true and published_error > made.tolerance
        if made.compute_conditional is not None:
            is_true = is_true and _seeded(made.compute_conditional).error() <= made.tolerance
    verdict = made.expected if is_true else "FAILS"
    return Checked(made, sides, error, verdict, time.perf_counter() - start, published_error)


def _seeded(compute: Compute) -> Sides:
    torch.manual_seed(0)
    return compute()
