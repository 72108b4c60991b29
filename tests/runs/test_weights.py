"""Weight files: equal tensors and metadata give equal bytes, and other programs can read them."""

from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from twofold.runs.weights import save_tensors


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
        assert file.metadata() == {"format": "pt", **metadata}
    assert all(torch.equal(value, tensors[name]) for name, value in load_file(path).items())
