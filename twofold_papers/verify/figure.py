"""The papers' figures, drawn from simulations. `twofold_papers/PAPER/figures.py` has one function for each figure."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twofold_papers.verify.claim import PAPERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


@dataclass(frozen=True)
class Figure:
    paper: str
    number: str  # "Figure 2"
    caption: str  # what the figure shows, and where it agrees with the paper's figure and where not
    draw: Callable[[], "Drawing"]


_FIGURES: list[Figure] = []


def figure(paper: str, number: str, caption: str) -> Callable[[Callable[[], "Drawing"]], Figure]:
    def register(draw: Callable[[], "Drawing"]) -> Figure:
        made = Figure(paper, number, caption, draw)
        _FIGURES.append(made)
        return made

    return register


def figures(paper: str | None = None) -> list[Figure]:
    """The figures of one paper, or of all papers; this imports matplotlib."""
    wanted = list(PAPERS) if paper is None else [paper]
    for name in wanted:
        importlib.import_module(f"twofold_papers.{name.replace('-', '_')}.figures")
    return [made for name in wanted for made in _FIGURES if made.paper == name]
