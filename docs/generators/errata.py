"""The errata: published statements that are wrong or hold conditionally, with what holds instead."""

import math
from collections.abc import Sequence

from generators.markdown import literal, table
from twofold_papers.verify.claim import PAPERS, Checked
from twofold_papers.verify.page import sentence


def page(results: Sequence[Checked]) -> str:
    """Return docs/errata.md: published forms that are wrong or hold conditionally, with what holds instead."""
    lines = [
        "# Errata of the five papers",
        "",
        "This page lists published statements that do not hold as they are written. Twofold checked each of them",
        "numerically. Run `twofold verify` to repeat the checks.",
        "",
        "- A statement is **wrong** if it fails in every reasonable interpretation that we found. Many of these",
        "  statements have a slip, such as a sign or an index. Most slips do not change the conclusions of a paper.",
        "- A statement **holds conditionally** if it holds in one reasonable interpretation and fails in another. This",
        "  page shows both, because the interpretation changes the numbers.",
        "",
        *counts(results),
        "",
        "Each entry has these parts:",
        "",
        "- **Published**: the statement or the formula in the paper.",
        "- **Holds if** and **Fails if**: the two interpretations of a statement that holds conditionally.",
        "- **Corrected** or **In general**: the statement that holds.",
        "- **Checked**: what Twofold computes to check the corrected or general statement. In most cases, these are",
        "  the two sides of an equation, computed in different ways.",
        "",
        "An error is the largest difference between the two sides, or the largest violation of an inequality. It is",
        "divided by the largest absolute value of either side if that is above 1. An infinite error means that a",
        "strict inequality does not hold, or that a side is not finite. A wrong published form must have an error",
        "above the tolerance. A published form that holds conditionally must have an error above the tolerance in one",
        "interpretation, and an error of at most the tolerance in the other.",
        "",
        "`python docs/generate.py` writes this page from the claims in `twofold_papers`. Do not edit it.",
        "",
    ]
    for name, title in PAPERS.items():
        of_paper = [checked for checked in results if checked.claim.paper == name and checked.claim.published_form]
        if of_paper:
            lines += [f"## {title}", ""]
        for heading, conditional in ((WRONG, False), (CONDITIONAL, True)):
            listed = [checked for checked in of_paper if (checked.claim.condition is not None) is conditional]
            if listed:
                lines += [f"### {heading}", ""]
                lines += [line for checked in listed for line in entry(checked)]
    return "\n".join(lines)


WRONG, CONDITIONAL = "Wrong", "Holds conditionally"


def counts(results: Sequence[Checked]) -> list[str]:
    """Return a table: how many statements of each paper are wrong, and how many hold conditionally."""
    rows = []
    for name, title in PAPERS.items():
        conditional = [
            c.claim.condition is not None for c in results if c.claim.paper == name and c.claim.published_form
        ]
        rows.append([title, str(conditional.count(False)), str(conditional.count(True))])
    total = [str(sum(int(row[column]) for row in rows)) for column in (1, 2)]
    return table(["paper", "wrong", "hold conditionally"], [*rows, ["all", *total]])


def entry(checked: Checked) -> list[str]:
    """Return the lines of one statement."""
    claim = checked.claim
    statement, _, how = claim.statement.partition(" Checked: ")
    published, error = literal(sentence(claim.published_form or "")), f"Error {magnitude(checked.published_error)}."
    lines = [f"**{literal(claim.number)}**", ""]
    if claim.condition is None:
        lines += [f"- Published: {published} {error}", f"- Corrected: {literal(sentence(statement))}"]
    else:
        lines += [f"- Published: {published}", f"- Holds if {literal(sentence(claim.condition))}"]
        lines += [f"- Fails if {literal(sentence(claim.failing_condition or ''))} {error}"]
        lines += [f"- In general: {literal(sentence(statement))}"]
    return [*lines, f"- Checked: {literal(sentence(how))} {corrected_error(checked)}", ""]


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
