"""Graphs of a batch from views, labels, groups and neighbours, compared with loops over pairs."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from twofold.config import Graph
from twofold.data.store import ImageStore
from twofold.errors import TwofoldError
from twofold.methods.own_function import reference_to
from twofold.methods.relations import (
    FEW_GROUPS,
    classes_of,
    few_groups,
    file_coverage,
    graph_fingerprint,
    graph_of,
    group_numbers,
)

INDEX = torch.tensor([2, 3, 5, 7, 11, 13])  # indices with gaps, because some images were held out or skipped
LABELS = torch.tensor([0, 1, 0, 2, 1, 0])
FILES = tuple(f"{name}.png" for name in "abcdef")


def store(labels: torch.Tensor | None = LABELS) -> ImageStore:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 255, (6, 1, 4, 4), dtype=torch.uint8, generator=generator)
    return ImageStore(images, labels, INDEX, FILES)


BATCH = torch.tensor([11, 2, 13, 7])
ROWS = [4, 0, 5, 3]  # rows of the batch's images in the store


def expected(related: object, views: int) -> torch.Tensor:
    rows = ROWS * views
    return torch.tensor([[float(related(i, j)) for j in rows] for i in rows])


@pytest.mark.parametrize("views", [1, 2, 3])
def test_view_graph_relates_views_of_one_image(views: int) -> None:
    assert torch.equal(graph_of(Graph(), store())(BATCH, views), expected(lambda i, j: i == j, views))


def test_label_graph_relates_images_of_one_class() -> None:
    graph = graph_of(Graph(source="labels"), store())(BATCH, 2)
    assert torch.equal(graph, expected(lambda i, j: LABELS[i] == LABELS[j], 2))


def test_partial_labels_relate_images_of_known_classes_and_views() -> None:
    setting = Graph(source="labels", labelled_fraction=0.5)
    known = group_numbers(setting, store())
    assert 0 < (known >= 0).sum() < 6
    assert torch.equal(known[known >= 0], LABELS[known >= 0])
    graph = graph_of(setting, store())(BATCH, 2)
    assert torch.equal(graph, expected(lambda i, j: i == j or (known[i] >= 0 and known[i] == known[j]), 2))
    assert torch.equal(known, group_numbers(setting, store())), "every run must select the same labels"


def test_balanced_labels_give_every_class_the_same_weight() -> None:
    everything = graph_of(Graph(source="labels", balance=True), store())(INDEX, 1)
    share = [everything.diagonal()[label == LABELS].sum() for label in range(3)]
    torch.testing.assert_close(torch.stack(share), torch.full((3,), 2.0))


@pytest.mark.parametrize("heading", ["", "file,patient\n"])
@pytest.mark.parametrize("by", ["name", "index"])
def test_groups_are_read_from_a_file(tmp_path: Path, heading: str, by: str) -> None:
    groups = {0: "p1", 3: "p1", 4: "p2", 5: "p1"}
    names = FILES if by == "name" else INDEX.tolist()
    lines = "".join(f"{names[place]},{group}\n" for place, group in groups.items())
    path = tmp_path / "groups.csv"
    path.write_text(heading + lines)
    graph = graph_of(Graph(source=str(path)), store(labels=None))(BATCH, 2)
    assert torch.equal(graph, expected(lambda i, j: groups[i] == groups[j], 2))


def test_neighbours_are_nearest_in_pixel_space() -> None:
    images = store()
    flat = images.images.flatten(1).double()
    distance = torch.cdist(flat, flat).fill_diagonal_(torch.inf)
    near = distance.argsort(dim=1)[:, :2]
    graph = graph_of(Graph(source="neighbours", neighbours=2), images)(BATCH, 1)
    assert torch.equal(graph, expected(lambda i, j: i == j or j in near[i] or i in near[j], 1))


def test_duplicates_are_near_identical_images() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 255, (40, 1, 32, 32), dtype=torch.uint8, generator=generator)
    noise = torch.randint(-3, 4, (2, 1, 32, 32), generator=generator)
    images[[30, 31]] = (images[[4, 5]].int() + noise).clamp(0, 255).to(torch.uint8)
    images[32] = (images[4].float() * 0.7).to(torch.uint8)  # darker
    found = group_numbers(Graph(source="duplicates"), ImageStore(images, None, torch.arange(40) + 7))
    assert found[4] == found[30] == found[32] >= 0
    assert found[5] == found[31] >= 0
    assert found[4] != found[5]
    assert (found >= 0).sum() == 5


def test_image_without_group_is_its_own_class() -> None:
    setting = Graph(source="labels", labelled_fraction=0.5)
    known = group_numbers(setting, store())
    classes = classes_of(setting, store())(BATCH, 2)
    same = (classes[:, None] == classes).float()
    assert torch.equal(same, expected(lambda i, j: i == j or (known[i] >= 0 and known[i] == known[j]), 2))


@pytest.mark.parametrize(
    "setting, message",
    [
        (Graph(source="labels"), "needs labels, and these images have none"),
        (Graph(source="label"), "did you mean 'labels'"),
        (Graph(source="nowhere.csv"), "nowhere.csv does not exist; choose from"),
    ],
)
def test_invalid_graph_sources_raise_an_error(setting: Graph, message: str) -> None:
    with pytest.raises(TwofoldError, match=message):
        graph_of(setting, store(labels=None))


def test_group_file_of_other_images_raises_an_error(tmp_path: Path) -> None:
    path = tmp_path / "groups.csv"
    path.write_text("x.png,1\ny.png,2\n")
    with pytest.raises(TwofoldError, match=r"names none of the training images: use their names, such as 'a.png'"):
        graph_of(Graph(source=str(path)), store())


def test_byte_order_mark_is_not_part_of_the_first_name(tmp_path: Path) -> None:
    path = tmp_path / "groups.csv"
    path.write_text("a.png,ü\nd.png,ü\n", encoding="utf-8-sig")
    assert group_numbers(Graph(source=str(path)), store()).tolist() == [0, -1, -1, 0, -1, -1]


def test_image_in_two_groups_raises_an_error(tmp_path: Path) -> None:
    path = tmp_path / "groups.csv"
    path.write_text("a.png,p1\nb.png,p2\na.png,p1\n")
    assert group_numbers(Graph(source=str(path)), store()).tolist() == [0, 1, -1, -1, -1, -1]
    path.write_text("a.png,p1\nb.png,p2\n2,p2\n")
    with pytest.raises(TwofoldError, match=r"lists the image '2' twice, in groups 'p1' and 'p2'"):
        group_numbers(Graph(source=str(path)), store())


def test_coverage_of_a_group_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "groups.csv"
    path.write_text("file,patient\na.png,p1\nd.png,p1\ne.png,p2\nheld.png,p3\nA.PNG,p4\nz.png,p4\n")
    setting = Graph(source=str(path))
    held_out = ImageStore(torch.zeros(1, 1, 4, 4, dtype=torch.uint8), None, torch.tensor([17]), ("held.png",))
    coverage = file_coverage(setting, store(), held_out)
    assert coverage == f"3 of 6 images in 2 groups; no image found for 2 rows: {path}"
    assert "; no image found for 3 rows" in file_coverage(setting, store(), None)
    path.write_text("".join(f"{name},1\n" for name in FILES))
    assert file_coverage(setting, store(), held_out) == f"6 of 6 images in 1 group: {path}"
    assert file_coverage(Graph(source="labels"), store(), held_out) == ""


def test_neighbour_graph_cannot_be_used_as_classes() -> None:
    with pytest.raises(TwofoldError, match="needs classes"):
        classes_of(Graph(source="neighbours"), store())


def test_few_dimensions_are_expected_if_all_images_are_in_few_groups() -> None:
    everything = Graph(source="labels")
    assert "3 groups" in few_groups(everything, store())
    for more in (Graph(), Graph(source="neighbours"), Graph(source="labels", labelled_fraction=0.5)):
        assert few_groups(more, store()) == ""
    many = torch.arange(FEW_GROUPS + 1)
    images = torch.zeros((len(many), 1, 4, 4), dtype=torch.uint8)
    assert few_groups(everything, ImageStore(images, many, many, None)) == ""
    assert few_groups(everything, ImageStore(images, many.clamp(max=FEW_GROUPS - 1), many, None)) != ""


def test_weighted_pairs_are_the_graph(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(
        "first,second,weight\na.png,e.png,0.5\nf.png,e.png,2\ne.png,f.png,2\nb.png,zzz.png,3\nd.png,d.png,7\n"
    )
    graph = graph_of(Graph(source=str(path)), store())(BATCH, 2)  # the batch has e, a, f and d
    weights = {(0, 4): 0.5, (4, 5): 2.0}
    weight_of = lambda i, j: 1 if i == j else weights.get((min(i, j), max(i, j)), 0)  # noqa: E731
    assert torch.equal(graph, expected(weight_of, 2))
    assert file_coverage(Graph(source=str(path)), store(), None) == (
        f"5 of 6 images in 5 pairs; no image found for 1 row: {path}"
    )
    path.write_text("first,second,weight\na.png,e.png,0.5\ne.png,a.png,1\n")
    with pytest.raises(TwofoldError, match="with two weights: keep one"):
        graph_of(Graph(source=str(path)), store())
    path.write_text("first,second\na.png,e.png\n")
    with pytest.raises(TwofoldError, match="needs classes"):
        classes_of(Graph(source=str(path)), store())


def test_function_gives_the_weights(tmp_path: Path) -> None:
    path = tmp_path / "graphs.py"
    path.write_text(
        "def near(index):\n    return 1 / (1 + (index[:, None] - index).abs())\ndef wrong(index):\n    return 3\n"
    )
    graph = graph_of(Graph(source=f"{path}:near"), store())(BATCH, 1)
    assert graph[0, 1] == pytest.approx(1 / (1 + 11 - 2))
    with pytest.raises(TwofoldError, match=r"wrong returned int for 4 images: return weights \[N, N\]"):
        graph_of(Graph(source=f"{path}:wrong"), store())(BATCH, 1)


def test_teacher_relates_images_by_the_cosine_of_their_features() -> None:
    features = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    graph = graph_of(Graph(source="teacher", encoder="x"), replace(store(), features=features))(BATCH, 2)
    centred = (features - features.mean(0))[ROWS]
    cosine = torch.nn.functional.cosine_similarity(centred[:, None], centred[None], dim=2)
    torch.testing.assert_close(graph, cosine.repeat(2, 2))
    with pytest.raises(TwofoldError, match=r"set graph\.encoder, or pass --teacher"):
        graph_of(Graph(source="teacher"), store())


def test_fingerprint_changes_with_what_the_graph_takes_from_elsewhere(tmp_path: Path) -> None:
    assert graph_fingerprint(Graph(source="labels"), store()) == ""
    found = {graph_fingerprint(Graph(source="teacher"), replace(store(), graph_encoder=name)) for name in "ab"}
    path = tmp_path / "graphs.py"
    for text in ("first = 1", "first = 2"):
        path.write_text(text)
        found.add(graph_fingerprint(Graph(source=f"{path}:near"), store()))
    assert len(found) == 4


def near(index: torch.Tensor) -> torch.Tensor:
    return 0.5 ** (index[:, None] - index).abs()


def test_functions_are_named_so_that_a_run_finds_them_again() -> None:
    reference = reference_to(near, "graph.source")
    assert reference == f"{__name__}:near"
    assert graph_of(Graph(source=reference), store())(BATCH, 1)[0, 3] == 0.5 ** (11 - 7)
    with pytest.raises(TwofoldError, match="define a function with a name in a module"):
        reference_to(lambda index: index, "graph.source")
