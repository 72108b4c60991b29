"""pictures.json is read only if Twofold wrote its contents."""

import json
from pathlib import Path

import pytest

from fake_runs import pictured_run
from twofold.errors import TwofoldError
from twofold.report.gallery import read_pictures
from twofold.report.page import render


def test_a_manipulated_pictures_file_is_refused(tmp_path: Path) -> None:
    folder = pictured_run(tmp_path / "run")
    pictures = read_pictures(folder)
    assert pictures["map"]
    pictures["map"]["sheet"]["address"] = "data:image/png;base64,AA==)}</style><script>alert(1)</script>"
    folder.write("pictures.json", json.dumps(pictures))
    with pytest.raises(TwofoldError, match=r"pictures\.json does not have the contents that Twofold writes"):
        render(folder)
    folder.write("pictures.json", json.dumps(pictures | {"format": 99}))
    assert read_pictures(folder) == {}
    folder.write("pictures.json", "{")
    with pytest.raises(TwofoldError, match=r"pictures\.json is not JSON"):
        render(folder)


@pytest.mark.parametrize(
    "place, value",
    [
        ("map.x", None),
        ("map.x", [1]),
        ("map.y", ["a"] * 40),
        ("map.labels", [99] * 40),
        ("map.perplexity", "a"),
        ("map.sheet.columns", 0),
        ("map.sheet.gutter", 0),
        ("map.sheet.rows", 10**9),
        ("neighbours.each", 4),
        ("neighbours.each", 10**30),
        ("neighbours.similarity", [1] * 47),
        ("neighbours.names", [1] * 48),
        ("views.images", 0),
        ("views.views", 10**9),
        ("views.small_crops", 900),
        ("classes", [1]),
    ],
)
def test_damaged_pictures_are_refused(tmp_path: Path, place: str, value: object) -> None:
    folder = pictured_run(tmp_path / "run", epochs=1, done=12)
    pictures = part = read_pictures(folder)
    *path, last = place.split(".")
    for key in path:
        part = part[key]
    part[last] = value
    folder.write("pictures.json", json.dumps(pictures))
    with pytest.raises(TwofoldError, match=r"pictures\.json does not have the contents .*; delete it"):
        render(folder)
