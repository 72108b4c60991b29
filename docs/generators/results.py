"""docs/results.md, the numbers of all methods, and docs/results/, one page for each paper with its tables."""

from collections import Counter
from functools import cache
from pathlib import Path

from generators import paths
from generators.markdown import literal, table, toctree
from generators.papers import FURTHER, INTRODUCTIONS, MAIN_CLAIMS
from generators.records import Record, RunTable, records, rows_of
from twofold_papers.reproduce.conclusions import conclusion, judged, seeds_of_rows
from twofold_papers.reproduce.measured import lines_of_measurements
from twofold_papers.reproduce.record import read_records
from twofold_papers.reproduce.show import Line, figures_of, lines_of_records, markdown
from twofold_papers.reproduce.statement import Judged
from twofold_papers.reproduce.table import Table, records_of
from twofold_papers.reproduce.tables import TABLES
from twofold_papers.verify.claim import PAPERS, claims

NOTICE = "<!-- Written by docs/generate.py from records/. Do not edit. -->\n"
INTRODUCTION = f"""{NOTICE}
# Results

This page shows the accuracy, the speed and the memory of all methods. The [pages of the papers](#papers) show our
numbers next to the published ones. To run a table again, see [Reproduce a table](how-to/reproduce-a-table.md).

Each row comes from a record in `records/`. A record is a file with the complete configuration of a run and its results.
A dash means that the record does not have this value. The columns are:

- **linear**: accuracy in per cent of a linear classifier on frozen features, on held-out images
- **kNN**: accuracy in per cent of a vote of the training images with the nearest features, on held-out images
- **online**: accuracy in per cent, on held-out images, of a linear classifier that is trained at the same time as the
  encoder and sends no gradient to it
- **effective rank**: how many dimensions the embeddings (the projector's output) use at the end of training (RankMe)
- **images/s**: training images per second, the median of the second half of the run
- **memory**: the largest amount of GPU memory that training allocated, in MiB
- **seconds**: duration of training and evaluation
- **made with**: the machine and the versions; the number refers to the list at the end of this page
"""
SUMMARY = """
## What the paper says, and our results

A number with a sign is the difference between the two rows that a statement compares. The status follows from the
records, the number of seeds and the published numbers: see [the meaning of each
status](#the-meaning-of-each-status)."""
THEOREMS = """
## What the paper says, and what we computed

Each statement is true of the numbers that `twofold verify` computes. A statement that holds as corrected, or
conditionally, differs from the published one: see [Errata](../errata.md)."""
THEORY = "`twofold verify {paper}` checks the equations and theorems; [Errata](../errata.md) has those that we correct."
STATUSES = """## The meaning of each status

- **agrees**: true of at least three seeds, trained as in the paper (same data set, network and number of epochs)
- **consistent with**: true, but of fewer seeds, or of runs that differ from those of the paper
- **disagrees**: false, for runs as in the paper
- **disagrees at this size**: false, for runs that differ from those of the paper
- **not comparable**: a number that depends on what differs
- **not decided**: our difference is smaller than its uncertainty, which is two standard errors over seeds. For a
  single seed, it is at least half a point of accuracy.
- **not run yet**: `benchmarks/GPU_QUEUE.md` has the command"""
HOW_TO_READ = """## How to read the tables

- A column with the title "published" has the number of the paper, and a column with the title "ours" has our number. If
  the published number is for other data, another network or another number of epochs, brackets state this.
- ± is the standard deviation over seeds.
- [Results](../results.md) explains linear, kNN and online accuracy and the effective rank.
- "Distinct features" is the number of eigenvalues of the covariance of the embeddings that are above 0.01 of the
  largest. It equals the number of singular values above 0.1 of the largest.
- The name in brackets after a title is the name of the table for `twofold reproduce`."""


def pages() -> dict[str, str]:
    """Return the text of each page, by its path below docs/."""
    return {
        "results.md": results_page(),
        **{f"results/{paper}.md": paper_page(paper, title) for paper, title in PAPERS.items()},
    }


def results_page() -> str:
    everything = records_in(paths.RECORDS)
    environments: dict[str, int] = {}
    shown: set[str] = set()  # the records that a table shows
    catalog, longer = TABLES["catalog"], TABLES["catalog-longer"]
    lines = [INTRODUCTION, "## All methods, CIFAR-10, ResNet-18, 30 epochs", ""]
    lines += ["All methods use their defaults. The table is sorted by linear accuracy.", ""]
    methods = method_table(catalog, everything, environments, shown)
    lines += [*table(methods.titles, methods.rows), "", paragraph(catalog, lines_of(catalog.name)), ""]
    found = lines_of(longer.name)
    lines += [f"## {longer.number}", "", *markdown(longer, found)[2:], "", paragraph(longer, found)]
    decayed = TABLES["decay-all-small"]
    lines += ["", *section(decayed, lines_of(decayed.name))]
    lines += ["", "## Papers", "", *(f"- [{title}](results/{paper}.md)" for paper, title in PAPERS.items()), ""]
    lines += toctree(f"results/{paper}" for paper in PAPERS)
    for each in TABLES.values():
        shown |= {name for line in lines_of(each.name) for name in line.records}
    digits = records("digits-*.json")
    others = {name: run for name, run in records("*.json").items() if name not in shown | digits.keys()}
    for title, runs in (("Digits: the demo and the tutorial for researchers", digits), ("Other runs", others)):
        rows = RunTable("record", environments)
        for name, run in runs.items():
            rows.add(f"[{name}](../records/{name}.json)", run)
        lines += ["", f"## {title}", "", *table(rows.titles, rows.rows)] if runs else []
    lines += ["", "## Made with", "", *(f"{number}. {text}" for text, number in environments.items())]
    return "\n".join(lines) + "\n"


def paragraph(each: Table, found: list[Line]) -> str:
    """Return what we conclude from a table, and from how many seeds."""
    if not any(line.has_results for line in found):
        return "**What we conclude.** We have not run it yet."
    seeds = seeds_of_rows(found)
    return " ".join([f"**What we conclude{f' ({seeds})' if seeds else ''}.**", *conclusion(each, found)])


def method_table(
    catalog: Table, everything: dict[str, Record], environments: dict[str, int], shown: set[str]
) -> RunTable:
    """Return the table of all methods, the most accurate first, and then their baselines."""
    found = {row.name: records_of(catalog, row, everything) for row in catalog.rows}
    rows = RunTable("method", environments)
    done = {name: runs for name, runs in found.items() if runs}
    for name, runs in sorted(done.items(), key=lambda item: -linear_accuracy(next(iter(item[1].values())))):
        for run in runs.values():
            rows.add(name, run)
        shown.update(runs)
    for name in found.keys() - done.keys():
        rows.add_missing(name)
    if done:
        run = next(iter(next(iter(done.values())).values()))
        rows.add("untrained", run, "untrained")
        rows.add("raw pixels", run, "raw pixels")
    return rows


def linear_accuracy(run: Record) -> float:
    return rows_of([run], "trained")[0]["linear_accuracy"]


@cache
def records_in(folder: Path) -> dict[str, Record]:
    return read_records(folder)


def lines_of(name: str) -> list[Line]:
    """Return the lines of the table with this name."""
    return lines_in(paths.RECORDS, name)


@cache
def lines_in(folder: Path, name: str) -> list[Line]:
    """Return the lines of a table. Several pages show them, and it takes a second to find the records of a table."""
    each = TABLES[name]
    if each.benchmark:
        return lines_of_measurements(each, paths.BENCHMARKS)
    return lines_of_records(each, records_in(folder))


def paper_page(paper: str, title: str) -> str:
    """Return the page of a paper: its statements and whether we agree, and then each table."""
    tables = [(each, lines_of(each.name)) for each in TABLES.values() if each.paper == paper]
    lines = [NOTICE, f"# {title}", INTRODUCTIONS[paper], THEORY.format(paper=paper)]
    said = without_twins([one for own, found in tables for one in judged(own, found)])
    summary = [each for each in said if each.statement.is_main and each.status != "not run yet"]
    if summary:
        usual = Counter(each.size.rpartition(", ")[0] for each in summary).most_common(1)[0][0]
        titles = ["the paper says", "published", "ours", "status", f"our runs ({usual}, unless stated)"]
        lines += [SUMMARY, "", *table(titles, [row_of(each, usual) for each in summary])]
    if paper in MAIN_CLAIMS:
        lines += [THEOREMS, "", *table(["statement", "in the paper", "status"], main_claims(paper))]
    if waiting := [text_of(each) for each in said if each.status == "not run yet"]:
        lines += ["", f"Not run yet: {'; '.join(waiting)}."]
    if paper in FURTHER:
        lines += ["", FURTHER[paper]]
    for each, found in tables:
        lines += ["", *section(each, found)]
    lines += ["", HOW_TO_READ, "", STATUSES] if summary else ["", HOW_TO_READ]
    return "\n".join(lines).rstrip() + "\n"


def main_claims(paper: str) -> list[list[str]]:
    """Return the cells of the main claims of a paper. Tests check that each claim has the verdict that it expects."""
    known = {each.number: each for each in claims(paper)}
    found = [known[number] for number in MAIN_CLAIMS[paper]]
    return [[literal(each.statement.partition(" Checked: ")[0]), each.number, each.expected] for each in found]


def row_of(each: Judged, usual: str) -> list[str]:
    """Return the cells of a statement: each has few words, so that the summary of a paper fits a screen."""
    size = each.size.removeprefix(f"{usual}, ")
    runs = ", ".join(filter(None, [size, each.seeds]))
    return [text_of(each), each.brief_published, each.brief_ours, each.status, runs]


def text_of(each: Judged) -> str:
    return f"{each.statement.text} ({each.statement.source.replace('section ', '§')})"


def without_twins(found: list[Judged]) -> list[Judged]:
    """Leave out a statement that was not run if another table, at reduced scale, has it."""
    run = {each.statement.text for each in found if each.status != "not run yet"}
    kept: dict[tuple[str, bool], Judged] = {}
    for each in found:
        if each.status != "not run yet" or each.statement.text not in run:
            kept.setdefault((each.statement.text, each.status == "not run yet"), each)
    return list(kept.values())


def section(each: Table, found: list[Line]) -> list[str]:
    """Return a table, how it differs from the paper, and what we conclude."""
    title, *rest = markdown(each, found)
    below = [line.replace("](figures/", "](../figures/") for line in rest]
    return [title.removeprefix("#"), *below, "", paragraph(each, found)]


def figures() -> dict[str, str]:
    """Return the figures of the tables, by the names of their files."""
    drawn = [figures_of(each, lines_of(each.name)) for each in TABLES.values()]
    return {name: picture for pictures in drawn for name, picture in pictures.items()}
