"""The experiments named in docs/s-diet.md are commands that the program understands; they are too long to run here."""

import re
import shlex
from pathlib import Path

import pytest

from twofold.config import resolve
from twofold.data.registry import NAMED_SETS
from twofold.keys import parse_overrides
from twofold.methods import schema

PAGE = Path(__file__).parents[2] / "docs" / "s-diet.md"
COMMANDS = re.findall(r"`twofold pretrain (.*?)`", PAGE.read_text())


@pytest.mark.parametrize("command", COMMANDS)
def test_experiments_can_be_configured(command: str) -> None:
    data, option, method, *keys = shlex.split(command)
    assert data in NAMED_SETS
    assert option == "--method"
    config = resolve(schema(method), {"user": parse_overrides(keys)})
    assert set(config.origin) == {key.partition("=")[0] for key in keys}


def test_there_are_experiments() -> None:
    assert len(COMMANDS) >= 10
