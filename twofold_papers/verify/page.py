"""Checked claims as rows of text, as one self-contained HTML page with the papers' figures, and as docs/errata.md."""

import base64
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

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
        "wrong_form": claim.wrong_form and sentence(claim.wrong_form),
        "published_error": error_text(checked.published_error),
    }


def sentence(text: str) -> str:
    """The text with one full stop at its end."""
    return text.rstrip(".") + "."


def picture(figure: Figure) -> str:
    """The figure as a data URL."""
    target = io.BytesIO()
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


def errata(results: Sequence[Checked]) -> str:
    """The text of docs/errata.md: published forms that are wrong, their corrections, and the error of each."""
    lines = [
        "# Errata of the five papers",
        "",
        "This page lists published statements that are wrong, with corrections that Twofold checked numerically. Run",
        "`twofold verify` to repeat the checks. For each statement, the page shows",
        "",
        "- **Published**: the statement or the formula in the paper.",
        "- **Corrected**: the statement that holds.",
        "- **Checked**: what Twofold computes to check the corrected statement. In most cases, these are the two sides",
        "  of an equation, computed in different ways.",
        "",
        "An error is the largest difference between the two sides, or the largest violation of an inequality. It is",
        "divided by the largest absolute value of either side if that is above 1. An infinite error means that a",
        "strict inequality does not hold, or that a side is not finite. The published form must have an error above",
        "the tolerance, and the corrected form an error of at most the tolerance.",
        "",
        "`python docs/generate.py` writes this page from the claims in `twofold_papers`. Do not edit it.",
        "",
    ]
    for name, title in PAPERS.items():
        wrong = [checked for checked in results if checked.claim.paper == name and checked.claim.wrong_form]
        if not wrong:
            continue
        lines += [f"## {title}", ""]
        for checked in wrong:
            claim = checked.claim
            corrected, _, how = claim.statement.partition(" Checked: ")
            lines += [
                f"**{claim.number}**",
                "",
                f"- Published: {sentence(claim.wrong_form or '')} Error {magnitude(checked.published_error)}.",
                f"- Corrected: {sentence(corrected)}",
                f"- Checked: {sentence(how)} {corrected_error(checked)}",
                "",
            ]
    return "\n".join(lines)


def corrected_error(checked: Checked) -> str:
    """A sentence on the error of the corrected form. Below 1e-8 it has no number, which would differ by machine."""
    tolerance = checked.claim.tolerance
    if checked.error > tolerance:
        return f"Error {magnitude(checked.error)}, above the tolerance of {tolerance:.0e}."
    if tolerance == 0:
        return "Error 0."
    number = "" if checked.error < 1e-8 else f"{magnitude(checked.error)}, "
    return f"Error {number}within the tolerance of {tolerance:.0e}."


def magnitude(error: float | None) -> str:
    """A rounded error, so that every machine writes the same text."""
    assert error is not None
    if math.isinf(error):
        return "infinite"
    return "below 1e-8" if error < 1e-8 else f"about {error:.0e}" if error < 0.01 else f"{error:.2g}"
