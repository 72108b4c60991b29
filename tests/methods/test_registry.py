"""Methods of the user's own that are named by a file or a module."""

import sys
from pathlib import Path

import pytest

from twofold.errors import TwofoldError
from twofold.methods import CATALOG, find, name_of_method

SOURCE = """
from twofold.methods import Method, Parts, entry

@entry(name="own-{name}")
def mine(parts: Parts, *, weight: float = 1.0) -> Method:
    "My own method."
    raise NotImplementedError

def plain(parts): ...
"""


@pytest.mark.parametrize("reference", ["own_{0}.py:mine", "own_{0}:mine"])
def test_a_file_or_module_in_the_current_folder_registers_its_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str
) -> None:
    name = "file" if ".py" in reference else "module"
    (tmp_path / f"own_{name}.py").write_text(SOURCE.format(name=name))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [path for path in sys.path if path])
    before = sys.path.copy()
    try:
        assert name_of_method(reference.format(name)) == f"own-{name}"
        assert find(f"own-{name}").summary == "My own method."
    finally:
        CATALOG.pop(f"own-{name}", None)
    assert sys.path == before
    with pytest.raises(TwofoldError, match="this function is not a method"):
        name_of_method(reference.format(name).replace("mine", "plain"))
    CATALOG.pop(f"own-{name}", None)


def test_names_of_the_catalog_are_not_imported() -> None:
    assert name_of_method("simclr") == "simclr"


def test_an_unknown_method_says_how_to_name_ones_own() -> None:
    with pytest.raises(TwofoldError, match=r"unknown method 'zzz' \(a method of your own: FILE.py:FUNCTION\); choose"):
        find("zzz")
    with pytest.raises(TwofoldError, match=r"unknown method 'mine' \(a method of your own: FILE.py:FUNCTION\), did"):
        find("mine")  # hardly like any method, so it may be one of the user's
    with pytest.raises(TwofoldError, match=r"unknown method 'simcrl', did you mean 'simclr'\?$"):
        find("simcrl")
