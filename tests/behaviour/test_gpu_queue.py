"""The commands in benchmarks/GPU_QUEUE.md name tables and rows that exist."""

import re
import shlex
from pathlib import Path

import pytest

from twofold_papers.reproduce.command import matching
from twofold_papers.reproduce.tables import TABLES

ROOT = Path(__file__).parents[2]
QUEUE = (ROOT / "benchmarks/GPU_QUEUE.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\| `([^`]+)` \|", QUEUE, re.MULTILINE)


@pytest.mark.parametrize("command", [each for each in COMMANDS if " reproduce " in each])
def test_commands_name_tables_and_rows(command: str) -> None:
    words = shlex.split(command.split(" reproduce ")[1])
    options = {place for place, word in enumerate(words) if word.startswith("--")}
    patterns = [words[place + 1] for place in sorted(options) if words[place] == "--row"]
    arguments = [word for place, word in enumerate(words) if not {place, place - 1} & options and "=" not in word]
    assert arguments
    for pattern in patterns or ["*"]:
        assert any(matching(TABLES[name], [pattern]) for name in arguments), pattern


@pytest.mark.parametrize("command", [each for each in COMMANDS if "benchmarks." in each])
def test_commands_name_benchmarks(command: str) -> None:
    found = re.search(r"-m benchmarks\.(\w+)", command)
    assert found is not None
    assert (ROOT / f"benchmarks/{found[1]}.py").is_file()
