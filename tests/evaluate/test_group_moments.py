"""Covariances within and between groups, block by block, against NumPy on all features at once."""

import numpy as np
import pytest
import torch

from twofold.evaluate import group_moments
from twofold.evaluate.group_moments import GraphMoments, GroupMoments

V, N, K = 3, 40, 5


def expected(features: torch.Tensor, numbers: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """T and B by their definitions, with a loop over groups."""
    rows = features.double().flatten(0, 1).numpy()
    group = np.tile([number if number >= 0 else 1000 + place for place, number in enumerate(numbers)], len(features))
    mean, between = rows.mean(0), np.zeros((rows.shape[1],) * 2)
    for name in set(group.tolist()):
        members = rows[group == name]
        apart = members.mean(0) - mean
        between += len(members) / len(rows) * np.outer(apart, apart)
    return np.cov(rows.T, bias=True), between


def accumulated(features: torch.Tensor, numbers: list[int], sizes: list[int]) -> GroupMoments:
    moments = GroupMoments(max(numbers) + 1)
    for rows in torch.arange(N).split(sizes):
        moments.add(features[:, rows], torch.tensor(numbers)[rows])
    return moments


def test_moments_of_views_and_of_groups_are_those_of_all_features():
    features = torch.randn(1, N, K) + torch.randn(V, N, K) + 100  # a large mean, so that digits could be lost
    for numbers in ([-1] * N, [place % 4 for place in range(N)], [place % 5 - 2 for place in range(N)]):
        moments = accumulated(features, numbers, [N])
        total, between = expected(features, numbers)
        np.testing.assert_allclose(moments.total, total, atol=1e-9)
        np.testing.assert_allclose(moments.between, between, atol=1e-9)
        np.testing.assert_allclose(moments.within, total - between, atol=1e-9)
        np.testing.assert_allclose(moments.mean, features.double().mean((0, 1)), rtol=1e-12)


def test_moments_do_not_depend_on_the_blocks():
    features, numbers = torch.randn(V, N, K) + 7, [place % 3 - 1 for place in range(N)]
    whole = accumulated(features, numbers, [N])
    for sizes in ([1] * N, [0, 17, 0, 23]):
        parts = accumulated(features, numbers, sizes)
        torch.testing.assert_close(parts.total, whole.total, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(parts.between, whole.between, rtol=1e-10, atol=1e-12)


def test_one_image_has_no_covariance_between_images():
    features = torch.randn(V, 1, K)
    moments = GroupMoments()
    moments.add(features)
    torch.testing.assert_close(moments.between, torch.zeros(K, K).double(), atol=1e-12, rtol=0)
    torch.testing.assert_close(moments.within, moments.total, atol=1e-12, rtol=0)


def test_moments_of_a_graph_of_groups_are_those_of_the_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_moments, "BLOCK", 7)  # several blocks
    numbers = torch.tensor([0, 1, 0, 2, -1, 1, 0, 2, -1, 1] * 2)
    features = torch.randn(3, 20, 4, generator=torch.Generator().manual_seed(0)) + 5

    def related(index: torch.Tensor) -> torch.Tensor:
        here = numbers[index]
        same = (here[:, None] == here) & (here >= 0)
        return (same | (index[:, None] == index)).float()

    by_groups, by_graph = GroupMoments(3), GraphMoments(related)
    for rows in torch.arange(20).split(6):
        by_groups.add(features[:, rows], numbers[rows])
        by_graph.add(features[:, rows], rows)
    torch.testing.assert_close(by_graph.between, by_groups.between)
    torch.testing.assert_close(by_graph.within, by_groups.within)
