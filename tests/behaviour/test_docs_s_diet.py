"""The commands of the S-DIET page configure a run. They are too long to execute here."""

import shlex

import pytest
from pages import DOCS, inline_commands

from twofold.config import resolve
from twofold.data.registry import NAMED_SETS
from twofold.keys import parse_overrides
from twofold.methods import schema

PAGE = DOCS / "how-to" / "run-the-s-diet-experiments.md"
PRETRAIN = "twofold pretrain "
COMMANDS = [words.removeprefix(PRETRAIN) for words in inline_commands(PAGE) if words.startswith(PRETRAIN)]


@pytest.mark.parametrize("command", COMMANDS)
def test_experiments_can_be_configured(command: str) -> None:
    data, option, method, *keys = shlex.split(command)
    assert data in NAMED_SETS
    assert option == "--method"
    config = resolve(schema(method), {"user": parse_overrides(keys)})
    assert set(config.origin) == {key.partition("=")[0] for key in keys}


def test_page_has_at_least_ten_experiments() -> None:
    assert len(COMMANDS) >= 10
