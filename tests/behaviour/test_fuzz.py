"""Changed files of every kind are read, or raise an error of Twofold. `torture/fuzz.py` does the same for hours."""

import json
import time
from collections.abc import Callable
from random import Random

import pytest

from torture import fuzz, mutate

JSON = json.dumps({"a": [1, {"b": "c"}], "d": None}).encode()


@pytest.mark.parametrize(
    "change, content", [(mutate.by_bytes, b"abc" * 9), (mutate.by_json, JSON), (mutate.by_lines, JSON + b"\n" + JSON)]
)
def test_equal_numbers_give_equal_changes(change: Callable[[bytes, Random], bytes], content: bytes) -> None:
    found = [change(content, Random(number)) for number in range(50)]
    assert found == [change(content, Random(number)) for number in range(50)]
    assert len(set(found)) > 25


def test_slow_and_foreign_errors_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> None:
        json.loads("{")

    try:
        read()
    except ValueError as error:
        place = fuzz.place_of(error)
    assert place.startswith("JSONDecodeError")
    monkeypatch.setattr(fuzz, "WAIT_SECONDS", 0.05)
    with pytest.raises(fuzz.TooSlow), fuzz.limited():
        time.sleep(5)
    monkeypatch.undo()
    with pytest.raises(MemoryError), fuzz.limited():
        bytearray(2 * fuzz.BYTES)


@pytest.mark.full
def test_changed_files_raise_no_foreign_errors() -> None:
    rows = fuzz.run(seconds=300, seed=int(time.time()))
    assert sum(row.tried for row in rows) > 100
    failed = [f"{row.test}: {row.note}" for row in rows if row.failed]
    assert failed == []
