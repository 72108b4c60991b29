"""A table as one self-contained HTML page: published numbers and ours, curves of the runs, and their settings."""

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from twofold.keys import shown
from twofold.report.charts import ROUNDING_ERROR, Chart, accuracy_axis, axis, chart, line
from twofold.report.page import page
from twofold_papers.reproduce.conclusions import conclusion
from twofold_papers.reproduce.record import Record
from twofold_papers.reproduce.show import Line, figures_of, seeds_text, shared_conditions, with_condition
from twofold_papers.reproduce.table import Table
from twofold_papers.verify.claim import PAPERS


def write_page(path: Path, table: Table, lines: Sequence[Line], asked: str = "") -> Path:
    """Write the page of a table. `asked` is a text with the settings that the user added to those of the table."""
    charts = [accuracy_chart(lines), *spectrum_charts(lines)]
    charts = [each for each in charts if each["series"]]
    html = page(
        "page.html",
        package="twofold_papers.reproduce",
        title=f"{table.number}: {table.title}",
        asked=asked,
        paper=PAPERS.get(table.paper, "Twofold"),
        columns=[
            (column.title, table.is_published(column), shared)
            for column, shared in zip(table.columns, shared_conditions(table, lines), strict=True)
        ],
        rows=[row_of(each, shared_conditions(table, lines)) for each in lines],
        settings=[(setting.key, shown(setting.value), setting.source) for setting in table.settings],
        differs=[with_markup(each) for each in table.differs],
        findings=with_markup("\n\n".join(conclusion(table, lines))),
        figures=list(figures_of(table, lines).values()),
        charts=charts,
        blob={each["id"]: each for each in charts},
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html, encoding="ascii")
    return path


def with_markup(text: str) -> str:
    """The text as HTML. As in Markdown, text between backticks is code, and text between two asterisks is bold."""
    parts = escape(text).split("`")
    html = "".join(f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts))
    return re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", html)


def row_of(each: Line, shared: Sequence[str]) -> dict[str, Any]:
    return {
        "name": each.name,
        "cells": [(with_condition(cell, common), cell.ours) for cell, common in zip(each.cells, shared, strict=True)],
        "epochs": each.epochs,
        "seeds": seeds_text(each),
        "note": each.note,
        "records": list(each.records),
    }


def first(each: Line) -> tuple[str, Record] | None:
    """The record of the first seed, from which curves are drawn."""
    return next(iter(each.records.items()), None)


def accuracy_chart(lines: Sequence[Line]) -> Chart:
    curves = []
    for each in lines:
        found = first(each)
        if found is not None:
            points: Mapping[str, float] = found[1]["online_accuracy"]
            name = f"{each.name}, {each.epochs}" if sum(other.name == each.name for other in lines) > 1 else each.name
            curves.append(line(name, [float(epoch) for epoch in points], [100 * value for value in points.values()]))
    return chart(
        "online_accuracy",
        "Online accuracy",
        "Accuracy on held-out images of a linear classifier that is trained with the encoder. First seed of each row.",
        axis("epoch", switch=True),
        accuracy_axis(),
        [curve for curve in curves if curve["y"]],
    )


def spectrum_charts(lines: Sequence[Line]) -> list[Chart]:
    charts = []
    for number, each in enumerate(lines):
        found = first(each)
        spectrum = found[1].get("spectrum") if found is not None else None
        if spectrum:
            charts.append(
                chart(
                    f"spectrum_{number}",
                    each.name,
                    "Eigenvalues of the covariance of the embeddings.",
                    axis("step", "log", whole=True),
                    axis("eigenvalue", "log", floor=ROUNDING_ERROR),
                    [
                        line(f"rank {rank}", spectrum["step"], values)
                        for rank, values in spectrum["eigenvalues"].items()
                    ],
                    ramp=True,
                )
            )
    return charts
