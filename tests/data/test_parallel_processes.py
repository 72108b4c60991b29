"""Worker processes that decode files: same results and order as in this process, even if a file kills a worker."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from twofold.data import parallel
from twofold.data.decode import decode_image, inspect_file
from twofold.data.load import load_data
from twofold.data.open import open_source

CRASHING_WORKER = """
import os
from twofold.data import parallel
here = parallel.with_image
parallel.with_image = lambda path, *rest, **most: os._exit(9) if "deadly" in path.name else here(path, *rest, **most)
parallel.serve()
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """More files than two requests hold. Every tenth is damaged, and one name is not UTF-8."""
    folder = tmp_path_factory.mktemp("files")
    generator = np.random.default_rng(0)
    paths = [folder / f"{number:03d}.png" for number in range(150)] + [folder / "name \udcff.png"]
    for number, path in enumerate(paths):
        Image.fromarray(generator.integers(0, 255, (9 + number % 5, 12, 3), dtype=np.uint8)).save(path, "PNG")
        if number % 10 == 3:
            path.write_bytes(path.read_bytes()[:40])
    return [*paths, folder / "nowhere.png"]


def decode_here(path: Path) -> np.ndarray | str:
    try:
        return decode_image(path, 8, 3)
    except parallel.Unreadable as error:
        return str(error)


def assert_same_as_here(found: list[np.ndarray | str], paths: list[Path]) -> None:
    for result, path in zip(found, paths, strict=True):
        np.testing.assert_array_equal(result, decode_here(path))


def test_workers_decode_like_this_process(files: list[Path]) -> None:
    found = list(parallel.decode_files(files, 8, 3))
    assert_same_as_here(found, files)
    assert sum(isinstance(result, str) for result in found) == 16


def test_workers_inspect_files_like_this_process(files: list[Path]) -> None:
    assert list(parallel.inspect_files(files)) == [inspect_file(path) for path in files]


def test_file_that_crashes_a_worker_is_reported_and_the_others_are_decoded(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "CODE", CRASHING_WORKER)
    paths = list(files)
    for place in (5, 6, 100):
        paths.insert(place, tmp_path / f"deadly-{place}.png")
    found = list(parallel.decode_files(paths, 8, 3))
    assert [place for place, result in enumerate(found) if str(result) == parallel.ENDED] == [5, 6, 100]
    others = [place for place in range(len(paths)) if place not in (5, 6, 100)]
    assert_same_as_here([found[place] for place in others], [paths[place] for place in others])


def test_workers_end_when_the_iterator_is_closed(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    start = parallel._Worker._start
    monkeypatch.setattr(parallel._Worker, "_start", lambda self: (start(self), made.append(self.process)))
    answers = parallel.decode_files(files, 8, 3)
    next(answers)
    assert len(made) == parallel.WORKERS
    answers.close()
    assert all(process.returncode is not None for process in made)


def test_worker_answers_every_file_of_a_request(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel.signal, "signal", lambda *_: None)  # this process must still receive Ctrl-C
    line = json.dumps(["decode", [str(files[0]), str(files[3])], [{}, 8, 1]]).encode() + b"\n"
    answers = io.BytesIO()
    parallel.serve(io.BytesIO(line), answers)
    content = answers.getvalue()
    (length,) = parallel.LENGTH.unpack(content[:4])
    assert length == 64
    assert content[4:68] == decode_image(files[0], 8, 1).tobytes()
    (length,) = parallel.LENGTH.unpack(content[68:72])
    assert content[72:].decode() == decode_here(files[3])
    assert length == -1 - len(content[72:])


def test_folder_is_read_the_same_with_and_without_workers(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = []
    for least in (10, 10_000):
        monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / str(least)))
        monkeypatch.setattr(parallel, "LEAST_FILES", least)
        data = load_data(open_source(files[0].parent), image_size=8, channels=3, test_fraction=0.0)
        results.append((data.train.images.numpy().copy(), data.train.files, data.skipped, data.fingerprint))
    (images, *others), (expected, *expected_others) = results
    np.testing.assert_array_equal(images, expected)
    assert others == expected_others
