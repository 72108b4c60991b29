"""Checked claims as rows of text, and as one self-contained HTML page with the papers' figures."""

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from twofold.device import one_thread
from twofold.report.page import environment, resource
from twofold_papers.verify.claim import PAPERS, Checked
from twofold_papers.verify.figure import Figure


def value_text(side: torch.Tensor | float) -> str:
    """A number; of several, the one with the largest magnitude, followed by an ellipsis."""
    values = torch.as_tensor(side, dtype=torch.float64).flatten()
    return f"{values[values.abs().argmax()].item():.4g}" + (" …" if len(values) > 1 else "")


def error_text(error: float | None) -> str:
    return "" if error is None else "0" if error == 0 else f"{error:.1e}"


def row(checked: Checked) -> dict[str, Any]:
    claim = checked.claim
    statement, separator, how = claim.statement.partition(" Checked: ")
    return {
        "number": claim.number,
        "statement": sentence(statement),
        "checked": sentence(separator.strip() + " " + how) if how else "",
        "left": value_text(checked.sides.left),
        "relation": checked.sides.relation,
        "right": value_text(checked.sides.right),
        "error": error_text(checked.error),
        "tolerance": f"{claim.tolerance:.0e}",
        "verdict": checked.verdict,
        "published_form": claim.published_form and sentence(claim.published_form),
        "published_error": error_text(checked.published_error),
        "condition": claim.condition and sentence(claim.condition),
        "failing_condition": claim.failing_condition and sentence(claim.failing_condition),
    }


def sentence(text: str) -> str:
    """The text with one full stop at its end."""
    return text.rstrip(".") + "."


def picture(figure: Figure) -> str:
    """The figure as a data URL."""
    target = io.BytesIO()
    with one_thread():
        figure.draw().savefig(target, format="png", dpi=110)
    return "data:image/png;base64," + base64.b64encode(target.getvalue()).decode("ascii")


def write_page(path: Path, results: Sequence[Checked], pictures: Sequence[tuple[Figure, str]]) -> Path:
    papers = [
        {
            "name": title,
            "rows": [row(checked) for checked in results if checked.claim.paper == name],
            "figures": [
                {"number": figure.number, "caption": figure.caption, "address": address}
                for figure, address in pictures
                if figure.paper == name
            ],
        }
        for name, title in PAPERS.items()
    ]
    html = (
        environment("twofold_papers.verify")
        .get_template("page.html")
        .render(
            title="The papers' claims, checked numerically",
            papers=[paper for paper in papers if paper["rows"]],
            counts=counts(results),
            style=resource("style.css"),
        )
    )
    path.write_text(html.encode("ascii", "xmlcharrefreplace").decode("ascii"), encoding="ascii")
    return path


def counts(results: Sequence[Checked]) -> dict[str, int]:
    verdicts = [checked.verdict for checked in results]
    return {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)}
