"""A claim is a statement of a paper, and a function that computes both of its sides independently.

@claim("frossl", "Proposition 3.1", "minimising ‖ZᵀZ‖² and ‖ZZᵀ‖² is the same", tolerance=1e-12)
def duality() -> Sides:
    ...
    return Sides(left, right)

@duality.printed("the same without the square")        # where the paper's own form is wrong: shown to fail
def _() -> Sides: ...
"""

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from twofold.errors import TwofoldError, nearest

PAPERS = {
    "s-diet": "S-DIET",
    "frossl": "FroSSL (Skean et al. 2024)",
    "birth": "The birth of self-supervised learning (Balestriero and LeCun 2024)",
    "alpha-cl": "α-CL (Tian 2022)",
    "isoloss": "IsoLoss (Halvagal et al. 2023)",
}
Relation = Literal["=", "≤", "≥", "<", ">"]
Verdict = Literal["holds", "holds as corrected", "FAILS"]


@dataclass(frozen=True)
class Sides:
    """Two values that are equal, or stand in the relation, elementwise."""

    left: Tensor | float
    right: Tensor | float
    relation: Relation = "="

    def error(self) -> float:
        """The largest violation, relative to the largest value where that is above 1."""
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
            return float("inf")  # no tolerance makes more of less
        return wrong.max().item() / scale


Compute = Callable[[], Sides]


@dataclass
class Claim:
    paper: str
    number: str  # as the paper counts: "Theorem 4.3", "eq 12"
    statement: str
    compute: Compute
    tolerance: float
    wrong_form: str | None = None  # what the paper prints, where that is wrong
    compute_printed: Compute | None = None

    def printed(self, statement: str) -> Callable[[Compute], "Claim"]:
        """The form in print, which must fail by more than the tolerance."""

        def attach(compute: Compute) -> Claim:
            self.wrong_form, self.compute_printed = statement, compute
            return self

        return attach

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
    printed_error: float | None = field(default=None)


_CLAIMS: list[Claim] = []


def claim(paper: str, number: str, statement: str, *, tolerance: float) -> Callable[[Compute], Claim]:
    assert paper in PAPERS

    def register(compute: Compute) -> Claim:
        made = Claim(paper, number, statement, compute, tolerance)
        _CLAIMS.append(made)
        return made

    return register


def claims(paper: str | None = None) -> list[Claim]:
    """All of them, or one paper's, in the order of the papers and of their modules."""
    if paper is not None and paper not in PAPERS:
        raise TwofoldError(f"there are no claims of '{paper}'{nearest(paper, list(PAPERS))}")
    for name in PAPERS:
        importlib.import_module(f"twofold_papers.{name.replace('-', '_')}.claims")
    wanted = list(PAPERS) if paper is None else [paper]
    return [made for name in wanted for made in _CLAIMS if made.paper == name]


def check(made: Claim) -> Checked:
    """Compute both sides, with the same random numbers every time, and leave the caller's as they were."""
    start = time.perf_counter()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        sides = made.compute()
        error, printed_error = sides.error(), None
        holds = error <= made.tolerance
        verdict: Verdict = "holds" if holds else "FAILS"
        if made.compute_printed is not None:
            torch.manual_seed(0)
            printed_error = made.compute_printed().error()
            if holds:  # a printed form that holds after all makes the claim of a mistake wrong
                verdict = "holds as corrected" if printed_error > made.tolerance else "FAILS"
    return Checked(made, sides, error, verdict, time.perf_counter() - start, printed_error)
