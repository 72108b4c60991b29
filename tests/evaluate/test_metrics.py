import math

import numpy as np
import pytest
import torch
from scipy.stats import entropy

from twofold.evaluate.metrics import condition_number, effective_rank, eigenvalues, shannon_entropy, stable_rank


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
    assert torch.linalg.eigvalsh(covariance.double()).min() < 0  # rounding of a matrix of rank 6
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


def test_two_eigenvalues():
    spectrum = torch.tensor([4.0, 1.0])
    assert effective_rank(spectrum) == pytest.approx(3 / 2 ** (2 / 3))  # singular values 2/3 and 1/3
    assert stable_rank(spectrum) == pytest.approx(5 / 4)
    assert shannon_entropy(spectrum) == pytest.approx(math.log(5) - 0.8 * math.log(4))


def test_one_direction():
    spectrum = torch.tensor([7.0, 0.0, 0.0])
    assert effective_rank(spectrum) == pytest.approx(1)
    assert stable_rank(spectrum) == pytest.approx(1)
    assert shannon_entropy(spectrum) == 0
    assert condition_number(spectrum) == math.inf


def test_complete_collapse():
    spectrum = eigenvalues(torch.zeros(5, 5))
    assert effective_rank(spectrum) == 0
    assert stable_rank(spectrum) == 0
    assert shannon_entropy(spectrum) == 0
    assert condition_number(spectrum) == math.inf


def test_condition_number_counts_from_one_and_stops_at_the_last():
    spectrum = 2.0 ** -torch.arange(20)
    assert condition_number(spectrum) == 2**13
    assert condition_number(spectrum, k=1) == 1
    assert condition_number(spectrum, k=3) == 4
    assert condition_number(spectrum[:5]) == 2**4


@pytest.mark.parametrize("measure", [effective_rank, stable_rank, condition_number, shannon_entropy])
def test_scale_of_the_embeddings_does_not_matter(measure):
    spectrum = torch.tensor([5.0, 2.0, 0.1], dtype=torch.float64)
    assert measure(1e-9 * spectrum) == pytest.approx(measure(spectrum), rel=1e-12)
