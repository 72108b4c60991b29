import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import twofold
from twofold.config import Graph
from twofold.data.load import load_data
from twofold.data.open import open_source
from twofold.data.readers.columns import number_labels, parse_label
from twofold.data.readers.lists import ListedImage, parse_list, read_list
from twofold.errors import TwofoldError
from twofold.methods.relations import group_numbers

RNG = np.random.default_rng(0)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six images in two folders, and one image outside."""
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "cache"))
    here = tmp_path / "workspace"
    for number in range(6):
        draw(here / ("scans" if number < 3 else "more scans") / f"{number}.png")
    draw(tmp_path / "outside.png")
    return here


def draw(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(RNG.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path)


def write_list(workspace: Path, name: str, *rows: str) -> Path:
    (workspace / name).write_text("\n".join(rows) + "\n")
    return workspace / name


def test_paths_without_labels_keep_their_order_and_are_relative_to_the_list(workspace: Path) -> None:
    path = write_list(
        workspace, "list.txt", "more scans/4.png", "", "scans/0.png", "../outside.png", str(workspace / "scans/1.png")
    )
    train, test, classes = read_list(path)
    assert train.files == ("more scans/4.png", "scans/0.png", "../outside.png", str(workspace / "scans/1.png"))
    assert (train.labels, train.groups, test, classes) == (None, None, None, None)
    data = load_data(open_source(path), image_size=8, channels=3, test_fraction=0)
    for row, name in enumerate(train.files):
        np.testing.assert_array_equal(data.train.images[row].permute(1, 2, 0), np.asarray(Image.open(workspace / name)))


def test_number_after_each_path_is_the_label(workspace: Path) -> None:
    train, _, classes = read_list(
        write_list(workspace, "list.txt", "scans/0.png 10", "more scans/3.png 9", "scans/1.png\t10")
    )
    assert train.files == ("scans/0.png", "more scans/3.png", "scans/1.png")
    assert (train.labels.tolist(), classes) == ([1, 0, 1], ("9", "10"))


def test_columns_are_found_by_name_in_any_order(workspace: Path) -> None:
    path = write_list(
        workspace,
        "table.csv",
        "group,age,Label,split,file_name",
        "anna,50,ill,train,scans/0.png",
        "anna,51,well,training,scans/1.png",
        ",52,,,scans/2.png",
        'ben,53,ill,test,"more scans/3.png"',
        "ben,54,well,validation,more scans/4.png",
    )
    train, test, classes = read_list(path)
    assert (train.files, test.files) == (
        ("scans/0.png", "scans/1.png", "scans/2.png"),
        ("more scans/3.png", "more scans/4.png"),
    )
    assert classes == ("ill", "well")
    assert (train.labels.tolist(), test.labels.tolist()) == ([0, 1, -1], [0, 1])
    assert (train.groups.tolist(), test.groups.tolist()) == ([0, 0, -1], [1, 1])


def test_columns_without_names_are_path_label_group(workspace: Path) -> None:
    rows = ("scans/0.png,cat,1", "scans/1.png,dog,1", "scans/2.png,cat,2")
    others = {name: [row.replace(",", mark) for row in rows] for name, mark in (("b.tsv", "\t"), ("c.csv", ";"))}
    for name, text in ({"a.csv": rows} | others).items():
        train, _, classes = read_list(write_list(workspace, name, *text))
        assert (train.labels.tolist(), train.groups.tolist(), classes) == ([0, 1, 0], [0, 0, 1], ("cat", "dog"))


def test_file_names_may_contain_a_semicolon(workspace: Path) -> None:
    (workspace / "scans/0.png").rename(workspace / "scans/a;b.png")
    train, _, classes = read_list(write_list(workspace, "names.csv", "scans/a;b.png", "scans/1.png"))
    assert (train.files, classes) == (("scans/a;b.png", "scans/1.png"), None)
    train, _, classes = read_list(write_list(workspace, "table.csv", "scans/a;b.png,cat", "scans/1.png,dog"))
    assert (train.files, classes) == (("scans/a;b.png", "scans/1.png"), ("cat", "dog"))
    train, _, classes = read_list(
        write_list(workspace, "europe.csv", "Label;Path", "cat;scans/1.png", "a,b;scans/2.png")
    )
    assert (train.files, classes) == (("scans/1.png", "scans/2.png"), ("a,b", "cat"))


def test_images_without_a_label_are_in_the_training_set(workspace: Path) -> None:
    labels = ["a", "b", "", "", "a", "b"]
    rows = [f"{'scans' if n < 3 else 'more scans'}/{n}.png,{label}" for n, label in enumerate(labels)]
    data = load_data(open_source(write_list(workspace, "t.csv", *rows)), image_size=8, channels=3, test_fraction=0.5)
    assert sorted(data.test.labels.tolist()) == [0, 1]
    assert data.train.labels.tolist().count(-1) == 2
    assert sorted([*data.train.index.tolist(), *data.test.index.tolist()]) == list(range(6))
    known = data.train.labelled()
    assert set(known.files) == {data.train.files[row] for row in range(4) if data.train.labels[row] >= 0}
    assert torch.equal(known.images, data.train.images[data.train.labels >= 0])
    assert known.labelled() is known


def test_groups_of_the_list_define_a_graph(workspace: Path) -> None:
    path = write_list(
        workspace, "t.csv", "path,group", "scans/0.png,x", "scans/1.png,", "scans/2.png,x", "more scans/3.png,y"
    )
    store = load_data(open_source(path), image_size=8, channels=3, test_fraction=0).train
    assert group_numbers(Graph(source="groups"), store).tolist() == [0, -1, 0, 1]
    bare = load_data(open_source(workspace / "scans"), image_size=8, channels=3, test_fraction=0).train
    with pytest.raises(TwofoldError, match="a column 'group'"):
        group_numbers(Graph(source="groups"), bare)


def test_training_on_a_list_with_some_labels_and_groups(workspace: Path, tmp_path: Path) -> None:
    for number in range(6, 40):
        draw(workspace / f"scans/{number}.png")
    names = [*(f"scans/{n}.png" for n in range(3)), *(f"scans/{n}.png" for n in range(6, 40))]
    rows = [f"{name},{'ab'[n % 2] if n % 3 else ''},{n // 4}" for n, name in enumerate(names)]
    run = twofold.pretrain(
        write_list(workspace, "t.csv", "path,label,group", *rows),
        method="ridge-graph", graph__source="groups", epochs=2, batch_size=8, projector=(16, 8), out=tmp_path / "run",
    )  # fmt: skip
    assert [row["name"] for row in run.results["table"]] == ["trained", "untrained", "HOG + colour", "raw pixels"]
    assert all("online_train_accuracy" in line for line in run.metrics)


def test_missing_files_are_skipped_with_a_reason(workspace: Path) -> None:
    path = write_list(workspace, "list.txt", "scans/0.png", "scans/none.png", "scans/1.png", "scans/nu\0l.png")
    data = load_data(open_source(path), image_size=8, channels=3, test_fraction=0)
    assert {item.path: item.reason for item in data.skipped} == {
        "scans/none.png": "No such file or directory",
        "scans/nu\0l.png": "not a valid file name",
    }
    assert data.train.index.tolist() == [0, 2]


def test_named_pipes_are_skipped(workspace: Path) -> None:
    os.mkfifo(workspace / "pipe.png")
    train, _, _ = read_list(write_list(workspace, "a.txt", "scans/0.png", "pipe.png", "scans/1.png"))
    assert dict(train.unreadable) == {"pipe.png": "not a file"}


@pytest.mark.parametrize(
    "name, rows, message",
    [
        ("a.txt", ["scans/0.png", "scans/0.png"], r"lists scans/0\.png twice"),
        ("a.txt", ["scans/0.png", "./scans//0.png"], "lists ./scans//0.png twice"),
        ("a.csv", ["path,split", "scans/0.png,tain"], "row 2 has split 'tain', did you mean 'train'"),
        ("a.csv", ["label,group", "cat,1"], "name the column of files path"),
        ("a.csv", ["img,breed", "scans/0.png,siam"], "the first row of .* is img, breed, which is not an image"),
        ("a.csv", ["path|label", "scans/0.png|cat"], r"is path\|label, .* separate columns by commas or semicolons"),
        ("a.csv", ["path\tlabel", "scans/0.png\tcat"], "is path\tlabel"),
        ("a.csv", ["path,label", ",cat"], "row 2 has no path of an image"),
        ("a.csv", ["path,split", "scans/0.png,test"], "lists no training images"),
        ("a.csv", [], "lists no training images"),
        ("a.txt", [], "lists no training images"),
        ("a.txt", ["nowhere.png"], r"none of the image files can be read \(1 tried\); .*nowhere\.png: No such file"),
    ],
)
def test_invalid_lists_raise_an_error(workspace: Path, name: str, rows: list[str], message: str) -> None:
    with pytest.raises(TwofoldError, match=message) as caught:
        read_list(write_list(workspace, name, *rows))
    assert "\n" not in str(caught.value)


def test_list_that_is_not_text_raises_an_error(workspace: Path) -> None:
    (workspace / "a.csv").write_bytes(b"\xff\xfe\x00path")
    with pytest.raises(TwofoldError, match="cannot be read as text"):
        read_list(workspace / "a.csv")


def test_byte_order_mark_is_not_part_of_the_first_column_name(workspace: Path) -> None:
    (workspace / "a.csv").write_bytes(b"\xef\xbb\xbfpath,label\r\nscans/0.png,x\r\n")
    assert read_list(workspace / "a.csv")[0].files == ("scans/0.png",)


def test_spaces_and_numbers_in_names_are_not_labels(tmp_path: Path) -> None:
    for names in (["my photo 3.png", "other 4.png"], ["a.png 3", "b.png"]):
        assert parse_list(write_list(tmp_path, "a.txt", *names)) == [ListedImage(name) for name in names]


def test_number_labels_are_sorted_as_numbers_and_unknown_labels_are_none() -> None:
    columns, names = number_labels(["10", "9", None], ["x", "-1", None])
    assert names == ("-1", "9", "10", "x")
    assert [column.tolist() for column in columns] == [[2, 1, -1], [3, 0, -1]]
    assert number_labels([None, None]) == ([None], None)
    assert [parse_label(value, "") for value in (3, np.int64(4), torch.tensor(5), 6.0, "x", b"y")] == [
        3,
        4,
        5,
        6,
        "x",
        "y",
    ]
    assert [parse_label(value, "") for value in (None, -1, "", math.nan)] == [None] * 4
    for value in (0.5, [1, 2], object()):
        with pytest.raises(TwofoldError, match="item 7 has the label"):
            parse_label(value, "item 7")
