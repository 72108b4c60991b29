"""Control characters in the names of files and classes never reach the terminal."""

import io
from pathlib import Path

import numpy as np
import pytest
from rich.table import Table

from twofold.cli.probing import class_table, print_accuracies
from twofold.console import SafeConsole
from twofold.display import Display
from twofold.text import printable

EVIL = "a\x1b[2Jb\x07\x9b31m\r\u202ec\udcff\x7f"
ESCAPED = "a\\x1b[2Jb\\x07\\x9b31m\\r\\u202ec\\udcff\\x7f"


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


def console(out: io.StringIO) -> SafeConsole:
    return SafeConsole(file=out, width=200, force_terminal=True, color_system=None)


def test_control_characters_are_escaped_and_text_is_not() -> None:
    assert printable(EVIL) == ESCAPED
    plain = "größe 写真 🐈\u200d⬛ \u00a0[bold] \\x1b\n\ttab"
    assert printable(plain) == plain


def test_everything_that_a_display_prints_is_escaped(out: io.StringIO) -> None:
    display = Display(console=console(out))
    display.say(EVIL)
    table = Table(EVIL, box=None)
    table.add_row(EVIL, EVIL)
    display.say(table)
    console(out).print(EVIL)
    lines = out.getvalue().splitlines()
    assert [line.count("\\x1b[2J") for line in lines if "a" in line] == [1, 1, 2, 1]
    assert printable(out.getvalue()) == out.getvalue()


def test_progress_bars_are_escaped_but_move_the_cursor(out: io.StringIO) -> None:
    display = Display(console=console(out))
    with display.stage(f"map of {EVIL}", 3) as stage:
        stage.note(1, EVIL)
    assert "\x1b[2K" in out.getvalue()  # of rich
    assert "\x1b[2Jb" not in out.getvalue()
    assert "\x07" not in out.getvalue()
    assert "map of a\\x1b" in out.getvalue()


def test_tables_of_classes_show_escaped_names_in_full(out: io.StringIO) -> None:
    row = {"name": "trained", "top1": 1.0, "top5": None, "per_class": [1.0, 0.5], "confusion": [[1, 0], [0, 1]]}
    found = {"data": EVIL, "layer": "pre", "train_images": 2, "test_images": 2, "classes": [EVIL, "dog"], "rows": [row]}
    print_accuracies(found, "linear", None, Display(console=console(out)))
    assert out.getvalue().count(ESCAPED) == 4  # the data, a row of each table, and a column
    assert "\x1b" not in out.getvalue()
    assert class_table(["a"], [row]).row_count == 1


def test_names_in_csv_files_are_not_changed(tmp_path: Path) -> None:
    """Programs read the file and need the true names. The how-to page says how to open it in a spreadsheet."""
    from twofold.verbs.feature_files import Catalogue, write_csv

    names = ["=1+1.png", "+a.png", "-b.png", "@c.png"]
    images = Catalogue(np.arange(4), np.zeros(4, bool), None, names, None)
    write_csv(tmp_path / "f.csv", images, iter([np.zeros((4, 2), np.float32)]))
    lines = (tmp_path / "f.csv").read_text().splitlines()[1:]
    assert [line.split(",")[0] for line in lines] == names
