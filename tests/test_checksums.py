"""Checksums: every flipped bit changes them, and records carry their own."""

import json
from pathlib import Path

import pytest

from twofold import checksums
from twofold.checksums import Damaged, extend, file_checksum, find_damage, seal, unseal


def test_a_sealed_record_keeps_its_content() -> None:
    record = {"format": 2, "größe": [1, 0.1, 1e-300, None, True], "nested": {"b": 1, "a": "x"}}
    assert unseal(json.loads(json.dumps(seal(record), indent=2)), "file") == record
    assert unseal(record, "file") == record  # of an earlier version
    assert unseal([1], "file") == [1]


def test_every_flipped_bit_of_a_sealed_record_is_noticed() -> None:
    record = {"lr": 0.25, "text": "a b", "flags": [True, None]}
    text = json.dumps(seal(record)).encode()
    for bit in range(8 * len(text)):
        damaged = bytearray(text)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            found = unseal(json.loads(damaged), "results.json")
        except (ValueError, Damaged):
            continue
        assert found == record, bit


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 40])
def test_file_checksums_notice_damage(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "BLOCK_BYTES", 8)
    path = tmp_path / "rows.bin"
    path.write_bytes(bytes(range(size)))
    recorded = json.loads(json.dumps(file_checksum(path)))
    assert len(recorded["crc32"]) == -(-size // 8)
    assert find_damage(path, recorded) == ""
    for at in range(size):
        path.write_bytes(bytes(value ^ (value == at) for value in range(size)))
        assert "another checksum" in find_damage(path, recorded)
    path.write_bytes(bytes(size + 1))
    assert f"has {size + 1} bytes instead of {size}" in find_damage(path, recorded)
    path.unlink()
    assert "cannot be read" in find_damage(path, recorded)


def test_a_checksum_can_be_continued(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("one")
    first = extend(path, 0, 0)
    path.write_text("one two")
    whole = extend(path, 0, 0)
    assert extend(path, *first) == whole == (7, whole[1])
    assert extend(path, 0, 0, end=3) == first
    assert extend(path, 0, 0, end=9) == whole  # the file is shorter
