"""docs/coverage.md: each item of the papers, the command that covers it, and its status."""

from generators.markdown import code, literal, table
from generators.results import lines_of
from twofold_papers.coverage import MISSING, Covered, coverage
from twofold_papers.verify.claim import PAPERS
from twofold_papers.verify.figure import figures

INTRODUCTION = """<!-- Written by docs/generate.py from the claims, figures, tables and records. Do not edit. -->

# Coverage of the papers

This page lists every numbered equation, statement, table and figure of the five papers, and every named ablation, with
the command that computes it.

- **run in full**: all sides of a claim are computed, a figure is drawn, or a table has a row that was trained as in the
  paper (same data set, network and number of epochs)
- **run at reduced scale**: the rows were trained for fewer epochs, on other data or with another network than in the
  paper
- **needs a GPU**: not run yet; `benchmarks/GPU_QUEUE.md` has the command
- **with** another item: a definition or a step of a proof, which is checked with that item
- **missing**: no command computes it

`twofold verify --list` and `twofold reproduce --list` list all claims, figures and tables.
"""


def page() -> str:
    lines = [INTRODUCTION]
    for paper, title in PAPERS.items():
        found = coverage(paper, lambda each: lines_of(each.name), [each.number for each in figures(paper)])
        missing = [each.item.name for each in found if each.status == MISSING]
        lines += [f"## {title}", "", f"{len(found)} items; missing: {', '.join(missing) or 'none'}.", ""]
        lines += [*table(["item", "command", "status"], map(cells, found)), ""]
    return "\n".join(lines)


def cells(each: Covered) -> list[str]:
    name = each.item.name + (f": {each.item.about}" if each.item.about else "")
    return [literal(name), ", ".join(map(code, each.commands)) or "—", literal(each.status)]
