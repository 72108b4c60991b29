"""Groups of near-duplicates, compared with a search of all pairs in numpy."""

import numpy as np
import pytest
import torch

from twofold.data import duplicates
from twofold.data.duplicates import RIDGE, Group, levelled, near_duplicates, pairs_above
from twofold.errors import TwofoldError
from twofold.evaluate.duplicates import Levelled
from twofold.runs.preprocess import Preprocess


def reference(features: np.ndarray, threshold: float) -> list[tuple[int, ...]]:
    """Return the connected components by breadth-first search in the full matrix of cosines."""
    centred = features - features.mean(0)
    values, vectors = np.linalg.eigh(np.cov(centred.T, bias=True))
    n, K = features.shape
    ridge = RIDGE * max(1, K / n) * values.sum() / min(K, n - 1)
    white = centred @ vectors / np.sqrt(values.clip(0) + ridge)
    white /= np.linalg.norm(white, axis=1, keepdims=True)
    close = white @ white.T >= threshold
    seen: set[int] = set()
    components = []
    for start in range(len(features)):
        front, found = {start} - seen, set()
        while front:
            found |= front
            front = {int(j) for i in front for j in np.nonzero(close[i])[0]} - found
        seen |= found
        if len(found) > 1:
            components.append(tuple(sorted(found)))
    return components


@pytest.mark.parametrize("block", [7, 64, 1000])
@pytest.mark.parametrize("n, K", [(150, 6), (40, 60)], ids=["n > K", "n < K"])
def test_groups_are_the_connected_components(n: int, K: int, block: int) -> None:
    generator = np.random.default_rng(0)
    features = generator.normal(size=(n, K)) * np.linspace(0.2, 3, K) + 5
    features[n // 2 :: 3] = features[: len(features[n // 2 :: 3])] + 0.02 * generator.normal(
        size=features[n // 2 :: 3].shape
    )
    found = near_duplicates(torch.from_numpy(features).float(), 0.9, block=block)
    assert sorted(group.rows for group in found) == sorted(reference(features, 0.9))
    assert len(found) > 5
    assert [len(group.rows) for group in found] == sorted((len(group.rows) for group in found), reverse=True)
    assert all(0.9 <= similarity <= 1 for group in found for similarity in group.similarities)


def test_a_chain_of_links_is_one_group_for_every_block_size() -> None:
    """Neighbours on a circle are similar, opposite points are not. Row numbers are shuffled along it."""
    order = np.random.default_rng(0).permutation(60)
    angle = torch.from_numpy(np.argsort(order)) * (2 * np.pi / 60)
    circle = torch.stack([angle.cos(), angle.sin()], dim=1).float()
    for block in (1, 4, 60):
        (group,) = near_duplicates(circle, 0.99, block=block)
        assert group.rows == tuple(range(60))
        assert min(group.similarities) == pytest.approx(np.cos(2 * np.pi / 60), abs=1e-4)
    assert near_duplicates(circle, 0.999) == []


def test_every_pair_is_found_once() -> None:
    rows = torch.nn.functional.normalize(torch.randn(50, 3), dim=1)
    expected = {(i, j) for i in range(50) for j in range(i + 1, 50) if float(rows[i] @ rows[j]) >= 0.8}
    done: list[tuple[int, int]] = []
    pairs = [
        pair
        for first, second, _ in pairs_above(rows, 0.8, 8, lambda *at: done.append(at))
        for pair in zip(first.tolist(), second.tolist(), strict=True)
    ]
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == expected
    assert done[-1] == (50, 50)


def test_many_copies_of_one_image_are_one_group() -> None:
    features = torch.cat([torch.randn(300, 16), torch.randn(1, 16).expand(5000, -1)])
    (group,) = near_duplicates(features)
    assert group.rows == tuple(range(300, 5300))


def test_features_that_are_all_equal_are_one_group() -> None:
    assert near_duplicates(torch.full((3, 4), 7.0)) == [Group((0, 1, 2), (1.0, 1.0, 1.0))]


@pytest.mark.parametrize(
    "features, threshold, message",
    [
        (torch.zeros(1, 4), 0.9, "at least two"),
        (torch.tensor([[1.0, float("nan")], [0, 1]]), 0.9, "NaN or infinite"),
        (torch.randn(4, 2), 0.0, "threshold=0"),
        (torch.randn(4, 2), 1.5, "threshold=1.5"),
    ],
)
def test_invalid_features_and_thresholds_are_refused(features: torch.Tensor, threshold: float, message: str) -> None:
    with pytest.raises(TwofoldError, match=message):
        near_duplicates(features, threshold)


def test_levelled_images_do_not_depend_on_brightness_or_contrast() -> None:
    pixels = torch.rand(3, 3, 5, 5)
    torch.testing.assert_close(levelled(0.6 * pixels + 0.2), levelled(pixels))
    flat = torch.tensor([0.0, 0.3, 1.0]).view(3, 1, 1, 1).expand(3, 1, 4, 4)
    torch.testing.assert_close(levelled(flat)[:, 0, 0, 0], torch.tensor([-1.0, -0.4, 1.0]))


@pytest.mark.parametrize("n, K", [(12, 48), (200, 8)])
def test_few_images_are_whitened_with_a_larger_ridge(n: int, K: int) -> None:
    torch.manual_seed(0)
    features = torch.randn(n, K) * torch.linspace(0.1, 3, K)
    x = (features - features.mean(0)).double()
    covariance = x.T @ x / n
    ridge = 0.1 * max(1, K / n) * covariance.trace() / min(K, n - 1)
    values, vectors = torch.linalg.eigh(covariance)
    expected = x @ vectors * (values.clamp(min=0) + ridge).rsqrt()
    expected = expected / expected.norm(dim=1, keepdim=True)
    rows = duplicates.whitened_features(features).double()
    torch.testing.assert_close(rows @ rows.T, expected @ expected.T, rtol=1e-4, atol=1e-4)


def test_no_similarity_is_above_1() -> None:
    torch.manual_seed(0)
    features = torch.randn(500, 64).repeat(2, 1)
    groups = duplicates.near_duplicates(features)
    assert len(groups) == 500
    assert max(value for group in groups for value in group.similarities) <= 1.0


@pytest.mark.parametrize("K", [3, 64, 2048])
def test_threshold_1_finds_exactly_the_copies(K: int) -> None:
    features = torch.randn(300, K, generator=torch.Generator().manual_seed(0))
    groups = near_duplicates(features.repeat(2, 1), 1.0)
    assert sorted(group.rows for group in groups) == [(row, row + 300) for row in range(300)]


def test_a_levelled_grey_image_stays_grey() -> None:
    preprocess = Preprocess(4, 3, [0.2, 0.5, 0.8], [0.1, 0.2, 0.3])
    grey = torch.randint(0, 256, (5, 1, 4, 4), dtype=torch.uint8).expand(-1, 3, -1, -1).contiguous()
    mean, std = preprocess.mean.view(-1, 1, 1), preprocess.std.view(-1, 1, 1)
    pixels = Levelled(preprocess)(grey) * std + mean
    torch.testing.assert_close(pixels[:, 1:], pixels[:, :1].expand(-1, 2, -1, -1))
    assert pixels.mean().item() == pytest.approx(0.5, abs=1e-5)
