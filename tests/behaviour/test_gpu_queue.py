"""The commands in benchmarks/GPU_QUEUE.md name tables and rows that exist."""

import re
import shlex
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from twofold.cli import app
from twofold_papers.reproduce.command import jobs_asked_for, matching, split, user_settings
from twofold_papers.reproduce.record import read_records
from twofold_papers.reproduce.table import Job, jobs_of
from twofold_papers.reproduce.tables import TABLES

ROOT = Path(__file__).parents[2]
QUEUE = (ROOT / "benchmarks/GPU_QUEUE.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\| `([^`]+)` \|", QUEUE, re.MULTILINE)


@pytest.mark.parametrize("command", [each for each in COMMANDS if " reproduce " in each])
def test_commands_name_tables_rows_and_settings_of_runs_that_are_possible(command: str) -> None:
    jobs = jobs_of_command(command)
    assert jobs
    assert not [job.refused for job in jobs if job.refused]


def test_each_row_without_a_record_has_a_command() -> None:
    """The pages of results say so."""
    queued = {job.name for command in COMMANDS if " reproduce " in command for job in jobs_of_command(command)}
    known = read_records(ROOT / "records")
    rows = {job.name: job for table in TABLES.values() for job in jobs_of(table, table.rows)}
    assert not [f"{job.table.name}, {job.row.name}" for name, job in rows.items() if name not in known.keys() | queued]


def jobs_of_command(command: str) -> list[Job]:
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    words = shlex.split(command)
    options = group.commands["reproduce"].make_context("reproduce", words[words.index("reproduce") + 1 :])
    names, settings = split(options.params["words"])
    tables = [TABLES[name] for name in names]
    patterns = options.params["row"] or ["*"]
    for pattern in patterns:
        assert any(matching(table, [pattern]) for table in tables), pattern
    return jobs_asked_for(tables, patterns, None, options.params["seeds"], user_settings(settings, tables, None))


def test_tables_at_reduced_scale_have_three_seeds() -> None:
    """They are small, and a GPU runs many of them at a time."""
    known = read_records(ROOT / "records")
    small = [table for table in TABLES.values() if "reduced scale" in f"{table.number} {table.title}"]
    jobs = [job for table in small for job in jobs_of(table, table.rows, seeds=[0, 1, 2])]
    assert len(jobs) > 250
    assert not [job.name for job in jobs if job.name not in known]


@pytest.mark.parametrize("command", [each for each in COMMANDS if "benchmarks." in each])
def test_commands_name_benchmarks(command: str) -> None:
    found = re.search(r"-m (benchmarks[.\w]+)", command)
    assert found is not None
    assert (ROOT / f"{found[1].replace('.', '/')}.py").is_file()
