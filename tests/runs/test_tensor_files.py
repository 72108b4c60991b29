"""Weight files: equal tensors give equal bytes, other programs can read them, and every flipped bit is noticed."""

from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from twofold.checksums import Damaged
from twofold.runs.tensor_files import load_tensors, save_tensors


def test_equal_weights_give_equal_files(tmp_path: Path) -> None:
    tensors = {"b": torch.arange(6.0).view(2, 3), "a": torch.ones(3, dtype=torch.int64), "half": torch.ones(1).half()}
    metadata = {"twofold": '{"größe": 3}', "zebra": "1", "apple": "2"}
    written = set()
    for number in range(20):  # safetensors writes metadata in random order; 20 equal orders by chance are improbable
        path = tmp_path / f"{number}.safetensors"
        save_tensors(path, tensors, metadata)
        written.add(path.read_bytes())
    assert len(written) == 1
    with safe_open(path, framework="pt") as file:
        found = file.metadata()
    assert len(found.pop("crc32")) == 8
    assert found == {"format": "pt", **metadata}
    assert all(torch.equal(value, tensors[name]) for name, value in load_file(path).items())


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.full)])
def test_a_flipped_bit_never_changes_the_tensors_silently(every: int, tmp_path: Path) -> None:
    path, tensors = tmp_path / "encoder.safetensors", {"a": torch.arange(6.0), "b": torch.ones(2, 3).half()}
    save_tensors(path, tensors, {"twofold": '{"crc32":"a description"}'})
    content, silent = path.read_bytes(), 0
    for bit in range(0, 8 * len(content), every):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            found = load_tensors(path)
        except (Damaged, SafetensorError):
            continue
        assert all(torch.equal(value, tensors[name]) for name, value in found.items()), bit
        silent += 1
    assert silent <= 8 * len('"crc32":"')  # the name of the checksum, so that the file seems to have none


def test_files_of_other_programs_have_no_checksum(tmp_path: Path) -> None:
    for number, metadata in enumerate((None, {"author": 'the words "crc32":"00000000"'})):
        path = tmp_path / f"{number}.safetensors"
        save_file({"crc32": torch.ones(3)}, path, metadata)
        assert torch.equal(load_tensors(path)["crc32"], torch.ones(3))
