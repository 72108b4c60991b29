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
