"""Checks of JSON files name the place and the wrong value, and raise a TwofoldError only."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from twofold.errors import TwofoldError
from twofold.schema import (
    MOST_BYTES,
    Check,
    either,
    fields,
    flag,
    items,
    measure,
    number,
    optional,
    read_json,
    text,
    values,
    whole,
)

RECORD = fields({"name": text}, {"rows": items(fields({"share": number(0, 1)})), "flags": values(optional(flag))})


@pytest.mark.parametrize(
    "value, problem",
    [
        ({"name": "a"}, ""),
        ({"name": "a", "rows": [{"share": 1}], "flags": {"b": None}, "later": [1]}, ""),
        ([], " is [], not an object"),
        ({}, " has no name"),
        ({"name": 3}, ".name is 3, not text"),
        ({"name": "a", "rows": {}}, ".rows is {}, not a list"),
        ({"name": "a", "rows": [{"share": 1}, {"share": 2}]}, ".rows[1].share is 2, not a number from 0 to 1"),
        ({"name": "a", "rows": [{"share": float("nan")}]}, ".rows[0].share is nan, not a number from 0 to 1"),
        ({"name": "a", "flags": {"b": 1}}, ".flags.b is 1, not true or false"),
        ({"name": ["x" * 99]}, f'.name is ["{"x" * 38}…, not text'),
    ],
)
def test_checks_name_the_place_and_the_value(value: Any, problem: str) -> None:
    assert RECORD(value) == problem


@pytest.mark.parametrize(
    "check, good, bad",
    [
        (whole(), [0, 5], [-1, 1.0, True, None, "1", 10**400]),
        (number(), [0, -1.5], [True, None, "1", float("inf"), 10**400]),
        (measure, [0, -1.5, float("nan"), float("inf")], [True, None, "1", 10**400]),
        (items(measure), [[], [1.0, float("nan")], [1, 2.0]], [[1.0, None], [True], 1.0]),
        (items(text, 2), [["a", "b"]], [["a"], ["a", "b", "c"], ["a", 1]]),
        (either(text, flag), ["a", True], [1, None]),
    ],
)
def test_checks_accept_their_values_only(check: Check, good: list[Any], bad: list[Any]) -> None:
    assert [value for value in good if check(value)] == []
    assert [value for value in bad if not check(value)] == []


def test_files_that_are_not_the_expected_json_raise_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    contents = [b"", b"{", b"\xff{}", b"[" * 100_000, b"1" * 5000, b'{"name": 1}', b"{}" + b" " * MOST_BYTES]
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(TwofoldError, match=r"a\.json .*; do this"):
            read_json(path, RECORD, "do this")
    path.unlink()
    with pytest.raises(TwofoldError, match=r"a\.json cannot be read \(No such file or directory\); do this"):
        read_json(path, RECORD, "do this")
    os.mkfifo(path)  # reading it would wait
    with pytest.raises(TwofoldError, match=r"a\.json cannot be read \(it is not a file\)"):
        read_json(path, RECORD, "do this")
    path.unlink()
    path.write_text(json.dumps({"name": "é\ud800"}))
    assert read_json(path, RECORD, "do this") == {"name": "é\ud800"}
