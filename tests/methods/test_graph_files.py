"""Files of graphs: headings, the output of `twofold duplicates`, pairs, and what is refused because it is ambiguous."""

from pathlib import Path

import pytest

from twofold.errors import TwofoldError
from twofold.methods.graph_files import GraphFile, read_graph
from twofold.verbs.duplicates import GroupedImage, write_duplicates

NAMES = frozenset(["a.png", "b.png", "c.png", "0", "1", "2"])


def read(tmp_path: Path, text: str, name: str = "graph.csv") -> GraphFile:
    path = tmp_path / name
    path.write_text(text)
    return read_graph(path, NAMES)


@pytest.mark.parametrize(
    "text, column",
    [
        ("a.png,x\nb.png,y\n", ""),
        ("0,x\n1,y\n", ""),
        ("picture,patient\na.png,x\nb.png,y\n", ""),
        ("path,label,group\na.png,cat,x\nb.png,dog,y\n", ""),
        ("Group;Path;similarity\nx;a.png;0.9\ny;b.png;0.8\n", ""),
        ("path,split,patient\na.png,train,x\nb.png,test,y\n", "patient"),
        ("index,file,group\n0,a.png,x\n1,,y\n", ""),
    ],
)
def test_groups_are_read_by_their_heading(tmp_path: Path, text: str, column: str) -> None:
    found = read(tmp_path, text)
    assert [group for _, group in found.groups] == ["x", "y"]
    assert {image for image, _ in found.groups} <= NAMES
    assert found.column == column
    assert found.pairs == []


@pytest.mark.parametrize("heading", ["first,second,weight\n", "name,name,similarity\n", "file1,file2,score\n", ""])
def test_weighted_pairs_are_read(tmp_path: Path, heading: str) -> None:
    found = read(tmp_path, f"{heading}a.png,b.png,0.5\nb.png,c.png,2\n")
    assert found == GraphFile(pairs=[("a.png", "b.png", 0.5), ("b.png", "c.png", 2.0)])


def test_pairs_without_weights_need_a_heading(tmp_path: Path) -> None:
    assert read(tmp_path, "source,target\na.png,b.png\n").pairs == [("a.png", "b.png", 1.0)]


@pytest.mark.parametrize("ending", [".csv", ".json", ".txt"])
@pytest.mark.parametrize("has_files", [True, False])
def test_output_of_duplicates_is_read_as_it_is(tmp_path: Path, ending: str, has_files: bool) -> None:
    files = ("a.png", "b.png", "c.png") if has_files else (None, None, None)
    images = [GroupedImage(number, "train", files[number], 0.97) for number in range(3)]
    path = write_duplicates(tmp_path / f"copies{ending}", [(images[0], images[2]), (images[1], images[1])])
    found = read_graph(path, NAMES)
    names = [file or str(number) for number, file in enumerate(files)]
    assert [image for image, _ in found.groups] == [names[0], names[2], names[1], names[1]]
    groups = [group for _, group in found.groups]
    assert groups[0] == groups[1] != groups[2] == groups[3]


@pytest.mark.parametrize(
    "text, message",
    [
        ("a.png,cat,1\nb.png,dog,2\n", "column 2 or in column 3.*path,label,group"),
        ("0,1,2\n1,2,2\n", r"pairs of images with a weight \(first,second,weight\)"),
        ("a.png,b.png\nb.png,c.png\n", "can be pairs of images, or images with groups that are named after images"),
        ("path,patient,visit\na.png,x,1\n", "the groups can be by patient or by visit: name one column group"),
        ("path,split\na.png,train,1\n", "none of them names groups: add a column group"),
        ("first,second,group\na.png,b.png,x\n", r"groups \(column group\) or pairs \(columns first and second\)"),
        ("group,label,score\nx,cat,1\n", "name the column of images path or index"),
        ("first,second,weight\na.png,b.png,-1\n", "has the weight '-1': weights must be numbers of at least 0"),
        ("a.png\nb.png\n", "each row must be a file name or index and a group"),
    ],
)
def test_ambiguous_and_incomplete_files_raise_an_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TwofoldError, match=message):
        read(tmp_path, text)


def test_other_json_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(TwofoldError, match="what `twofold duplicates --out` writes"):
        read(tmp_path, '{"a": 1}', "graph.json")
