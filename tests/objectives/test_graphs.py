"""Graphs between samples compared with loops over pairs and with scikit-learn's neighbours."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import kneighbors_graph
from torch._subclasses.fake_tensor import FakeTensorMode

from twofold.errors import TwofoldError
from twofold.objectives import graphs
from twofold.objectives.graphs import (
    across_views,
    balanced_weights,
    combine,
    group_graph,
    knn_graph,
    label_graph,
    label_matrix,
    nearest_neighbours,
    neighbour_graph,
    view_graph,
)


def test_views_of_one_sample_are_related() -> None:
    graph = view_graph(3, 2)
    assert graph.tolist() == [[float(i % 3 == j % 3) for j in range(6)] for i in range(6)]


def test_view_graph_equals_one_class_per_image() -> None:
    """Proposition 1, for the row order of a flattened z[V, N, D]."""
    image = torch.arange(4).repeat(3)
    y = torch.nn.functional.one_hot(image).double()
    assert torch.equal(view_graph(4, 3, dtype=torch.float64), y @ y.T)
    assert torch.equal(view_graph(4, 3), label_graph(image))
    z = torch.arange(4.0)[None, :, None].expand(3, 4, 1)  # each embedding is its image index
    rows = z.flatten(0, 1)
    assert torch.equal(view_graph(4, 3), (rows == rows.T).float())


def test_label_graph_accepts_class_numbers_and_matrices() -> None:
    labels = torch.tensor([2, 0, 2, 1, 0])
    weights = torch.tensor([0.5, 3.0, 2.0], dtype=torch.float64)
    numbers = labels.tolist()
    same = [[float(a == b) for b in numbers] for a in numbers]
    weighted = [[weights[a].item() * (a == b) for b in numbers] for a in numbers]
    one_hot = torch.nn.functional.one_hot(labels)
    assert label_graph(labels).tolist() == same
    assert label_graph(one_hot).tolist() == same
    for kind in (torch.int64, torch.int16, torch.uint8):  # torch would index with uint8 as with a mask
        assert label_graph(labels.to(kind), weights).tolist() == weighted
    assert label_graph(one_hot.double(), weights).tolist() == weighted
    soft = torch.rand(4, 3, dtype=torch.float64)
    expected = np.einsum("ic,c,jc->ij", soft.numpy(), weights.numpy(), soft.numpy())
    np.testing.assert_allclose(label_graph(soft, weights), expected, rtol=1e-13)


def test_each_unknown_label_is_a_separate_class() -> None:
    labels = torch.tensor([1, -1, 1, -1])
    expected = [[1, 0, 1, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]]
    assert label_graph(labels).tolist() == expected
    weighted = label_graph(labels, torch.tensor([7.0, 3.0]))
    assert weighted.tolist() == [[3, 0, 3, 0], [0, 1, 0, 0], [3, 0, 3, 0], [0, 0, 0, 1]]


def test_partial_labels_are_combined_with_views() -> None:
    """Semi-supervised: views of one sample are related, and all views of samples with the same known class."""
    labels = [1, -1, 1, -1, 0]
    expected = np.zeros((10, 10))
    for i in range(10):
        for j in range(10):
            a, b = i % 5, j % 5
            expected[i, j] = a == b or (labels[a] == labels[b] and labels[a] >= 0)
    graph = across_views(label_graph(torch.tensor(labels)), 2)
    assert graph.tolist() == expected.tolist()
    known = across_views(torch.tensor([[float(a == b and a >= 0) for b in labels] for a in labels]), 2)
    assert combine(view_graph(5, 2), known).tolist() == expected.tolist()


@settings(max_examples=30)
@given(st.lists(st.integers(-2, 4), min_size=1, max_size=9))
def test_label_matrix_times_its_transpose_is_the_graph(numbers: list[int]) -> None:
    labels = torch.tensor(numbers)
    y = label_matrix(labels)
    assert y.shape == (len(numbers), len(numbers))
    assert (y.sum(dim=1) == 1).all()
    assert torch.equal(y @ y.T, label_graph(labels))


def test_label_matrix_returns_a_matrix_unchanged() -> None:
    y = torch.rand(4, 2)
    assert label_matrix(y) is y


def test_groups_are_looked_up_by_index() -> None:
    groups = torch.tensor([5, 5, -1, 8, 8, -1, 5])
    index = torch.tensor([6, 2, 0, 5, 3])
    graph = group_graph(index, groups)
    assert graph.tolist() == [
        [1, 0, 1, 0, 0],
        [0, 1, 0, 0, 0],
        [1, 0, 1, 0, 0],
        [0, 0, 0, 1, 0],
        [0, 0, 0, 0, 1],
    ]


def test_balanced_weights_give_every_class_the_same_sum() -> None:
    labels = torch.tensor([0] * 6 + [1] * 3 + [3] + [-1] * 4)
    weights = balanced_weights(labels, 4)
    assert weights.tolist() == pytest.approx([10 / 24, 10 / 12, 0, 10 / 4])
    total = torch.zeros(4).index_add(0, labels[:10], weights[labels[:10]])
    assert total.tolist() == pytest.approx([2.5, 2.5, 0, 2.5])


def test_combine_is_the_union() -> None:
    a, b, c = (torch.rand(3, 3) for _ in range(3))
    assert combine(a, b, c).tolist() == torch.stack([a, b, c]).amax(dim=0).tolist()
    assert combine(a) is a


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("k", [1, 3, 39])
def test_nearest_neighbours_equal_those_of_scikit_learn(k: int, offset: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "ROWS_AT_ONCE", 16)  # three blocks, the last one short
    features = torch.randn(40, 6) + offset
    directed = kneighbors_graph(features.double().numpy(), k, include_self=False).toarray()
    found = torch.zeros(40, 40).scatter(1, nearest_neighbours(features, k), 1.0)
    assert found.tolist() == directed.tolist()
    expected = np.maximum(directed, directed.T)
    np.fill_diagonal(expected, 1)
    assert knn_graph(features, k).tolist() == expected.tolist()


def test_nearest_neighbour_comes_first() -> None:
    assert nearest_neighbours(torch.tensor([[0.0], [1.0], [3.0], [7.0]]), 2).tolist() == [
        [1, 2],
        [0, 2],
        [1, 0],
        [2, 1],
    ]


def test_graph_of_a_batch_is_a_part_of_the_whole_graph() -> None:
    features = torch.randn(30, 3)
    index = torch.randperm(30)[:12]
    part = neighbour_graph(index, nearest_neighbours(features, 4))
    assert torch.equal(part, knn_graph(features, 4)[index][:, index])


def test_identical_rows_and_half_inputs_have_neighbours() -> None:
    graph = knn_graph(torch.ones(5, 2, dtype=torch.bfloat16), 2)
    assert torch.equal(graph, graph.T)
    assert (graph.sum(dim=1) >= 3).all()
    assert (graph.diagonal() == 1).all()


def test_graphs_do_not_synchronize_with_the_host() -> None:
    with FakeTensorMode():
        labels = torch.randint(0, 3, (6,))
        index = torch.arange(6)
        label_graph(labels, torch.rand(3))
        label_matrix(labels)
        group_graph(index, torch.randint(0, 3, (20,)))
        balanced_weights(labels, 3)
        neighbour_graph(index, nearest_neighbours(torch.randn(20, 3), 2))
        knn_graph(torch.randn(6, 4), 2)


def test_invalid_arguments_raise_errors() -> None:
    for k in (0, 5):
        with pytest.raises(TwofoldError, match="from 1 to 4"):
            knn_graph(torch.randn(5, 2), k)
    for labels in (torch.rand(4), torch.zeros(2, 2, 2)):
        with pytest.raises(TwofoldError, match="class numbers"):
            label_graph(labels)
