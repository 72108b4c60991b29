"""Feature files: their content, and the memory for writing them."""

import csv
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import twofold
from twofold.verbs.diagnose import diagnose
from twofold.verbs.feature_files import WRITERS, Catalogue, read_features, write_npz


@pytest.mark.extras
def test_other_parquet_files_raise_an_error(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "x.parquet"
    for columns in ({"age": [1, 2]}, {"features": [1.0, 2.0]}, {"features": [[1.0], [1.0, 2.0]]}):
        parquet.write_table(arrow.table(columns), path)
        with pytest.raises(twofold.TwofoldError, match="cannot be read: there is no column 'features' with lists"):
            diagnose(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(twofold.TwofoldError, match="cannot be read"):
        diagnose(path)


def test_file_names_that_are_not_utf8_are_escaped_in_csv(tmp_path: Path) -> None:
    names = ["caf\udce9.png", 'ü,"b".png']  # the first is how Python decodes a byte that is not UTF-8
    images = Catalogue(np.arange(2), np.zeros(2, bool), None, names, None)
    blocks = [np.eye(2, 3, dtype=np.float32)]
    for ending, write in WRITERS.items():
        if ending != ".parquet":
            write(tmp_path / f"x{ending}", images, iter(blocks))
    with np.load(tmp_path / "x.npz") as file:
        assert file["files"].tolist() == names
    with (tmp_path / "x.csv").open(encoding="utf-8", newline="") as file:
        assert [row["file"] for row in csv.DictReader(file)] == [r"caf\udce9.png", names[1]]


def test_memory_does_not_grow_with_the_features(tmp_path: Path) -> None:
    count, width, block = 40_000, 512, 500
    images = Catalogue(np.arange(count), np.zeros(count, bool), None, None, None)
    tracemalloc.start()
    write_npz(tmp_path / "x.npz", images, (np.full((block, width), i, np.float32) for i in range(count // block)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * block * width * 4  # of 80 MB in all
    with np.load(tmp_path / "x.npz") as file:
        features = file["features"]
    assert features.shape == (count, width)
    assert np.array_equal(features[::block, 0], np.arange(count // block))


@pytest.mark.parametrize("array", [np.zeros((3, 0), np.float32), np.zeros((3, 2), np.longdouble), np.zeros(3)])
def test_arrays_that_cannot_be_features_raise_an_error(tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "f.npy", array)
    with pytest.raises(twofold.TwofoldError, match="embeddings must be floats of shape"):
        read_features(tmp_path / "f.npy")


def test_numbers_in_the_other_byte_order_are_read(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", np.array([[1.0, 2.0], [3.0, 4.0]], ">f4"))
    assert read_features(tmp_path / "f.npy").tolist() == [[1.0, 2.0], [3.0, 4.0]]
