"""The errata: published statements that are wrong, with their corrections."""

import math
from collections.abc import Sequence

from generators.markdown import literal
from twofold_papers.verify.claim import PAPERS, Checked
from twofold_papers.verify.page import sentence


def page(results: Sequence[Checked]) -> str:
    """Return docs/errata.md: published forms that are wrong, their corrections, and the error of each."""
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
                f"**{literal(claim.number)}**",
                "",
                f"- Published: {literal(sentence(claim.wrong_form or ''))} Error {magnitude(checked.published_error)}.",
                f"- Corrected: {literal(sentence(corrected))}",
                f"- Checked: {literal(sentence(how))} {corrected_error(checked)}",
                "",
            ]
    return "\n".join(lines)


def corrected_error(checked: Checked) -> str:
    """Return a sentence on the error of the corrected form. Errors below 1e-8 differ by machine, so it omits them."""
    tolerance = checked.claim.tolerance
    if checked.error > tolerance:
        return f"Error {magnitude(checked.error)}, above the tolerance of {tolerance:.0e}."
    if tolerance == 0:
        return "Error 0."
    number = "" if checked.error < 1e-8 else f"{magnitude(checked.error)}, "
    return f"Error {number}within the tolerance of {tolerance:.0e}."


def magnitude(error: float | None) -> str:
    """Return a rounded error, so that every machine writes the same text."""
    assert error is not None
    if math.isinf(error):
        return "infinite"
    return "below 1e-8" if error < 1e-8 else f"about {error:.0e}" if error < 0.01 else f"{error:.2g}"
