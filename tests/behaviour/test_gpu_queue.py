"""The commands in benchmarks/GPU_QUEUE.md name tables and rows that exist."""

import re
import shlex
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from twofold.cli import app
from twofold_papers.reproduce.command import jobs_asked_for, matching, split, user_settings
from twofold_papers.reproduce.tables import TABLES

ROOT = Path(__file__).parents[2]
QUEUE = (ROOT / "benchmarks/GPU_QUEUE.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\| `([^`]+)` \|", QUEUE, re.MULTILINE)


@pytest.mark.parametrize("command", [each for each in COMMANDS if " reproduce " in each])
def test_commands_name_tables_rows_and_settings_of_runs_that_are_possible(command: str) -> None:
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    words = shlex.split(command)
    options = group.commands["reproduce"].make_context("reproduce", words[words.index("reproduce") + 1 :])
    names, settings = split(options.params["words"])
    tables = [TABLES[name] for name in names]
    patterns = options.params["row"] or ["*"]
    for pattern in patterns:
        assert any(matching(table, [pattern]) for table in tables), pattern
    jobs = jobs_asked_for(tables, patterns, None, options.params["seeds"], user_settings(settings, tables, None))
    assert jobs
    assert not [job.refused for job in jobs if job.refused]


def test_the_first_rows_are_the_tables_at_reduced_scale() -> None:
    """They are small, and a GPU runs many of them at a time."""
    small = {name for name, table in TABLES.items() if "reduced scale" in f"{table.number} {table.title}"}
    assert small <= set(" ".join(COMMANDS[:2]).split())
    assert all("--parallel" in command for command in COMMANDS[:2])


@pytest.mark.parametrize("command", [each for each in COMMANDS if "benchmarks." in each])
def test_commands_name_benchmarks(command: str) -> None:
    found = re.search(r"-m (benchmarks[.\w]+)", command)
    assert found is not None
    assert (ROOT / f"{found[1].replace('.', '/')}.py").is_file()
