"""The memory of the host on systems that do not report it."""

from pathlib import Path

import pytest

from twofold import device


def test_memory_is_assumed_if_the_system_does_not_report_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    monkeypatch.delattr("os.sysconf")
    assert device.host_memory() == device.ASSUMED_MEMORY / 2
