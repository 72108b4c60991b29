"""Figures of the papers, drawn from simulation: one function each, in `twofold_papers/PAPER/figures.py`."""

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
    caption: str  # what is seen, what the paper's shows, and where the two differ
    draw: Callable[[], "Drawing"]


_FIGURES: list[Figure] = []


def figure(paper: str, number: str, caption: str) -> Callable[[Callable[[], "Drawing"]], Figure]:
    def register(draw: Callable[[], "Drawing"]) -> Figure:
        made = Figure(paper, number, caption, draw)
        _FIGURES.append(made)
        return made

    return register


def figures(paper: str | None = None) -> list[Figure]:
    """All of them, or one paper's; imports what draws them."""
    wanted = list(PAPERS) if paper is None else [paper]
    for name in wanted:
        importlib.import_module(f"twofold_papers.{name.replace('-', '_')}.figures")
    return [made for name in wanted for made in _FIGURES if made.paper == name]
