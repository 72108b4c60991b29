"""docs/results.md, the numbers of all methods, and docs/results/, one page for each paper with its tables."""

from generators import paths
from generators.markdown import table, toctree
from generators.papers import SUMMARIES
from generators.records import Record, RunTable, records, rows_of
from twofold_papers.reproduce.measured import lines_of_measurements
from twofold_papers.reproduce.record import read_records
from twofold_papers.reproduce.show import figures_of, lines_of_records, markdown
from twofold_papers.reproduce.table import Table, records_of
from twofold_papers.reproduce.tables import TABLES
from twofold_papers.verify.claim import PAPERS

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
PAPER_INTRODUCTION = """\
This page compares our results with those of the paper. First comes a summary, then each table or figure of the paper
that we rerun."""
HOW_TO_READ = """## How to read the tables

- A column with the title "published" has the number of the paper, and a column with the title "ours" has our number. If
  the published number is for another number of epochs or for other data, brackets state this.
- ± is the standard deviation over seeds.
- [Results](../results.md) explains linear, kNN and online accuracy and the effective rank.
- "Distinct features" is the number of eigenvalues of the covariance of the embeddings that are above 0.01 of the
  largest. It equals the number of singular values above 0.1 of the largest.
- The name in brackets after a title is the name of the table for `twofold reproduce`."""


def pages() -> dict[str, str]:
    """Return the text of each page, by its path below docs/."""
    everything = read_records(paths.RECORDS)
    return {
        "results.md": results_page(),
        **{f"results/{paper}.md": paper_page(paper, title, everything) for paper, title in PAPERS.items()},
    }


def results_page() -> str:
    everything = read_records(paths.RECORDS)
    environments: dict[str, int] = {}
    shown: set[str] = set()  # the records that a table shows
    catalog, longer = TABLES["catalog"], TABLES["catalog-longer"]
    lines = [INTRODUCTION, "## All methods, CIFAR-10, ResNet-18, 30 epochs", ""]
    lines += ["All methods use their defaults. The table is sorted by linear accuracy.", ""]
    methods = method_table(catalog, everything, environments, shown)
    lines += [*table(methods.titles, methods.rows), "", catalog.findings, ""]
    lines += [f"## {longer.number}", "", longer.findings, "", *markdown(longer, lines_of_records(longer, everything))]
    lines += ["", "## Papers", "", *(f"- [{title}](results/{paper}.md)" for paper, title in PAPERS.items()), ""]
    lines += toctree(f"results/{paper}" for paper in PAPERS)
    for each in TABLES.values():
        shown |= {name for row in each.rows for name in records_of(each, row, everything)}
    digits = records("digits-*.json")
    others = {name: run for name, run in records("*.json").items() if name not in shown | digits.keys()}
    for title, runs in (("Digits: the demo and the tutorial for researchers", digits), ("Other runs", others)):
        rows = RunTable("record", environments)
        for name, run in runs.items():
            rows.add(f"[{name}](../records/{name}.json)", run)
        lines += ["", f"## {title}", "", *table(rows.titles, rows.rows)] if runs else []
    lines += ["", "## Made with", "", *(f"{number}. {text}" for text, number in environments.items())]
    return "\n".join(lines) + "\n"


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


def paper_page(paper: str, title: str, everything: dict[str, Record]) -> str:
    """Return the page of a paper: which of its results we confirm, and its tables with their findings."""
    lines = [NOTICE, f"# {title}", "", PAPER_INTRODUCTION, SUMMARIES[paper], HOW_TO_READ, ""]
    for each in (each for each in TABLES.values() if each.paper == paper):
        found = lines_of_measurements(each, paths.BENCHMARKS) if each.benchmark else lines_of_records(each, everything)
        title, *rest = markdown(each, found)
        below = [line.replace("](figures/", "](../figures/") for line in rest]
        lines += [title.removeprefix("#"), "", each.findings or "We have not run this table yet.", *below, ""]
    return "\n".join(lines).rstrip() + "\n"


def figures() -> dict[str, str]:
    """Return the figures of the tables, by the names of their files."""
    everything = read_records(paths.RECORDS)
    drawn = [figures_of(each, lines_of_records(each, everything)) for each in TABLES.values()]
    return {name: picture for pictures in drawn for name, picture in pictures.items()}
