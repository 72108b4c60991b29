"""Measures without labels, compared with numpy, SciPy and known values."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import entropy

from twofold.evaluate.metrics import (
    alignment,
    condition_number,
    dimensions_above,
    effective_rank,
    eigenvalues,
    eigenvector_alignment,
    saturation_step,
    shannon_entropy,
    stable_rank,
    uniformity,
)
from twofold.linalg import normalized


def centred_embeddings() -> np.ndarray:
    generator = np.random.default_rng(0)
    z = generator.normal(size=(200, 24)) * np.geomspace(1, 1e-3, 24) @ generator.normal(size=(24, 24))
    return z - z.mean(0)


def test_measures_of_embeddings_agree_with_their_singular_values():
    z = centred_embeddings()
    singular = np.linalg.svd(z, compute_uv=False)
    spectrum = eigenvalues(torch.from_numpy(z.T @ z / len(z)))
    np.testing.assert_allclose(spectrum.numpy(), singular**2 / len(z), rtol=1e-8)
    assert effective_rank(spectrum) == pytest.approx(math.exp(entropy(singular)), rel=1e-8)
    assert stable_rank(spectrum) == pytest.approx(np.linalg.norm(z, "fro") ** 2 / np.linalg.norm(z, 2) ** 2, rel=1e-10)
    assert condition_number(spectrum) == pytest.approx((singular[0] / singular[13]) ** 2, rel=1e-8)
    assert shannon_entropy(spectrum) == pytest.approx(entropy(singular**2), rel=1e-8)


def test_eigenvalues_are_descending_float64_and_never_negative():
    z = torch.randn(6, 40, generator=torch.Generator().manual_seed(0))
    covariance = (z.T @ z).requires_grad_()
    assert torch.linalg.eigvalsh(covariance.double()).min() < 0  # rounding errors of a matrix of rank 6
    spectrum = eigenvalues(covariance)
    assert spectrum.dtype == torch.float64
    assert not spectrum.requires_grad
    assert (spectrum >= 0).all()
    assert (spectrum.diff() <= 0).all()
    assert (spectrum > 1e-3).sum() == 6


@pytest.mark.parametrize("dimensions", [1, 3, 64])
def test_equal_eigenvalues_use_every_dimension(dimensions):
    spectrum = torch.full((dimensions,), 0.3)
    assert effective_rank(spectrum) == pytest.approx(dimensions)
    assert stable_rank(spectrum) == pytest.approx(dimensions)
    assert shannon_entropy(spectrum) == pytest.approx(math.log(dimensions), abs=1e-12)
    assert condition_number(spectrum) == pytest.approx(1)


def test_measures_of_two_eigenvalues():
    spectrum = torch.tensor([4.0, 1.0])
    assert effective_rank(spectrum) == pytest.approx(3 / 2 ** (2 / 3))  # singular values 2/3 and 1/3
    assert stable_rank(spectrum) == pytest.approx(5 / 4)
    assert shannon_entropy(spectrum) == pytest.approx(math.log(5) - 0.8 * math.log(4))


def test_measures_of_one_direction():
    spectrum = torch.tensor([7.0, 0.0, 0.0])
    assert effective_rank(spectrum) == pytest.approx(1)
    assert stable_rank(spectrum) == pytest.approx(1)
    assert shannon_entropy(spectrum) == 0
    assert condition_number(spectrum) == math.inf


def test_measures_of_a_complete_collapse():
    spectrum = eigenvalues(torch.zeros(5, 5))
    assert effective_rank(spectrum) == 0
    assert stable_rank(spectrum) == 0
    assert shannon_entropy(spectrum) == 0
    assert condition_number(spectrum) == math.inf


def test_condition_number_counts_k_from_1_and_limits_it_to_the_last():
    spectrum = 2.0 ** -torch.arange(20)
    assert condition_number(spectrum) == 2**13
    assert condition_number(spectrum, k=1) == 1
    assert condition_number(spectrum, k=3) == 4
    assert condition_number(spectrum[:5]) == 2**4


@pytest.mark.parametrize("measure", [effective_rank, stable_rank, condition_number, shannon_entropy])
def test_scale_of_the_embeddings_does_not_matter(measure):
    spectrum = torch.tensor([5.0, 2.0, 0.1], dtype=torch.float64)
    assert measure(1e-9 * spectrum) == pytest.approx(measure(spectrum), rel=1e-12)


def test_dimensions_above_counts_singular_values_above_a_tenth_of_the_largest():
    singular = torch.tensor([5.0, 2.0, 0.51, 0.49, 0.0], dtype=torch.float64)
    assert dimensions_above(singular**2) == 3
    assert dimensions_above(singular**2, share=0.3) == 2
    assert dimensions_above(1e-12 * singular**2) == 3
    assert dimensions_above(torch.zeros(4)) == 0


def test_an_eigenvalue_saturates_when_it_stays_near_its_last_value():
    steps = [1, 2, 4, 8, 16, 32]
    assert saturation_step(steps, [0.0, 0.2, 0.89, 0.91, 0.95, 1.0]) == 8
    assert (
        saturation_step(steps, [1.5, 0.95, 0.5, 0.91, 0.95, 1.0]) == 8
    )  # it was above the limit earlier, but fell again
    assert saturation_step(steps, [1.0] * 6) == 1
    assert saturation_step(steps, [0.0] * 5 + [1.0]) == 32
    assert saturation_step(steps, [0.0, 0.2, 0.45, 0.6, 0.7, 1.0], share=0.4) == 4


def rotation(dimensions: int, seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(dimensions, dimensions)))[0]


def test_a_predictor_with_the_eigenvectors_of_the_correlation_is_aligned():
    u = rotation(6, 0)
    spectrum = np.array([9.0, 5.0, 3.0, 1.0, 0.5, 0.1])
    correlation = torch.from_numpy(u * spectrum @ u.T)
    for of_predictor in (np.sqrt(spectrum), -spectrum, np.array([0.1, 2.0, 0.3, 7.0, 1.0, 1.0])):
        cosines, values = eigenvector_alignment(torch.from_numpy(u * of_predictor @ u.T), correlation)
        np.testing.assert_allclose(cosines, 1, atol=1e-12)
        np.testing.assert_allclose(values, spectrum, rtol=1e-12)


def test_a_predictor_that_rotates_an_eigenvector_is_not_aligned_with_it():
    u, angle = rotation(4, 1), 0.7
    correlation = torch.from_numpy(u * np.array([8.0, 4.0, 2.0, 1.0]) @ u.T)
    turn = np.eye(4)
    turn[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    cosines, _ = eigenvector_alignment(torch.from_numpy(u @ (3.0 * turn) @ u.T), correlation)
    np.testing.assert_allclose(cosines, [np.cos(angle), np.cos(angle), 1, 1], atol=1e-12)
    nothing, _ = eigenvector_alignment(torch.zeros(4, 4), correlation)
    assert nothing.tolist() == [0, 0, 0, 0]


def test_the_cross_moment_of_a_linear_predictor_is_aligned_like_its_matrix():
    generator = np.random.default_rng(2)
    z = generator.normal(size=(500, 5)) * np.array([3.0, 2.0, 1.0, 0.5, 0.2]) @ rotation(5, 3)
    w = generator.normal(size=(5, 5))
    correlation = z.T @ z / len(z)
    by_matrix, _ = eigenvector_alignment(torch.from_numpy(w), torch.from_numpy(correlation))
    by_moment, _ = eigenvector_alignment(torch.from_numpy((z @ w.T).T @ z / len(z)), torch.from_numpy(correlation))
    np.testing.assert_allclose(by_moment, by_matrix, atol=1e-10)


@pytest.mark.parametrize("views", [2, 3, 4])
def test_alignment_is_the_mean_squared_distance_of_views(views):
    z = np.random.default_rng(4).normal(size=(views, 7, 5))
    u = z / np.linalg.norm(z, axis=2, keepdims=True)
    pairs = [((u[v] - u[w]) ** 2).sum(1).mean() for v in range(views) for w in range(views) if v != w]
    assert alignment(torch.from_numpy(z)).item() == pytest.approx(np.mean(pairs), rel=1e-12)
    same = torch.from_numpy(z[:1]).expand(views, 7, 5)
    assert alignment(3 * same).item() == pytest.approx(0, abs=1e-12)


def test_uniformity_of_points_with_known_distances():
    corners = torch.tensor([[2.0, 0.0], [-0.1, 0.0], [0.0, 3.0], [0.0, -5.0]], dtype=torch.float64)
    expected = math.log((4 * math.exp(-8) + 8 * math.exp(-4)) / 12)  # 4 ordered pairs at distance 2, 8 at √2
    assert uniformity(corners).item() == pytest.approx(expected, rel=1e-12)
    assert uniformity(torch.ones(5, 3)).item() == pytest.approx(0, abs=1e-6)
    spread = torch.randn(200, 4000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert uniformity(spread).item() == pytest.approx(-4, abs=0.01)


@pytest.mark.parametrize("z", [torch.zeros(50, 8), torch.full((50, 8), 1e-10), -torch.full((50, 8), 1e-30)])
def test_uniformity_of_rows_of_length_0_is_0(z):
    assert uniformity(z).item() == pytest.approx(0, abs=1e-6)


def test_uniformity_treats_a_row_of_length_0_as_the_origin():
    z = torch.tensor([[3.0, 0.0], [0.0, 0.0], [-2.0, 0.0]], dtype=torch.float64)
    expected = math.log((4 * math.exp(-2) + 2 * math.exp(-8)) / 6)  # 4 ordered pairs at distance 1, 2 at 2
    assert uniformity(z).item() == pytest.approx(expected, rel=1e-12)


def test_uniformity_of_longer_rows_is_bit_identical_to_that_of_their_cosines():
    z = torch.randn(256, 64, generator=torch.Generator().manual_seed(0))
    u = normalized(z)
    exponents = (4.0 * (u @ u.T - 1)).fill_diagonal_(-math.inf)
    assert torch.equal(uniformity(z), exponents.flatten().logsumexp(0) - math.log(256 * 255))
