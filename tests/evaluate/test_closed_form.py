"""Maps in closed form against SciPy, a bisection and their definitions, and what they do not depend on."""

import numpy as np
import pytest
import torch
from scipy import linalg, optimize
from torch import Tensor

from twofold.errors import TwofoldError
from twofold.evaluate.closed_form import (
    directions,
    ridge_weights,
    threshold_weights,
    whitening_weights,
    within_weights,
    within_whitening,
)


def covariances(views: int = 3, images: int = 50, width: int = 6) -> tuple[Tensor, Tensor]:
    """T and B of random features, in which views of an image are alike."""
    mixing = torch.randn(width, width, dtype=torch.float64)
    features = (torch.randn(1, images, width).double() + 0.6 * torch.randn(views, images, width).double()) @ mixing
    flat = (features - features.mean((0, 1))).flatten(0, 1)
    means = features.mean(0) - features.mean((0, 1))
    return flat.T @ flat / len(flat), means.T @ means / images


def test_directions_are_the_generalised_eigenvectors_of_scipy():
    total, between = covariances()
    found = directions(total, between)
    ratios, vectors = linalg.eigh(between.numpy(), total.numpy())
    np.testing.assert_allclose(found.ratios, ratios[::-1], rtol=1e-10)
    signs = np.sign((found.vectors.numpy() * vectors[:, ::-1]).sum(0))
    np.testing.assert_allclose(found.vectors.numpy() * signs, vectors[:, ::-1], rtol=1e-8, atol=1e-10)
    with_ridge = directions(total, between, 0.5)
    expected = linalg.eigh(between.numpy(), total.numpy() + 0.5 * np.eye(6), eigvals_only=True)
    np.testing.assert_allclose(with_ridge.ratios, expected[::-1], rtol=1e-10)


def test_ratios_do_not_depend_on_an_invertible_map_of_the_features():
    total, between = covariances()
    change = torch.randn(6, 6, dtype=torch.float64)
    before, after = directions(total, between), directions(change @ total @ change.T, change @ between @ change.T)
    torch.testing.assert_close(after.ratios, before.ratios)
    weights = within_weights(before.ratios)
    # The adapted features are the same up to signs, so their inner products are the same.
    maps = before.map(weights), after.map(weights) @ change
    torch.testing.assert_close(maps[0].T @ maps[0], maps[1].T @ maps[1])


def test_directions_of_features_with_fewer_dimensions_leave_the_others_out():
    total, between = covariances(width=4)
    wide = torch.randn(9, 4, dtype=torch.float64)
    found = directions(wide @ total @ wide.T, wide @ between @ wide.T)
    torch.testing.assert_close(found.ratios, directions(total, between).ratios)
    assert found.vectors.shape == (9, 4)
    nothing = directions(torch.zeros(3, 3), torch.zeros(3, 3))
    assert nothing.vectors.shape == (3, 0)
    assert directions(torch.zeros(3, 3), torch.zeros(3, 3), ridge=1.0).ratios.tolist() == [0, 0, 0]


@pytest.mark.parametrize(("ridge", "size"), [(0.01, 6.0), (0.5, 1.0), (2.0, 0.1), (3.0, 50.0)])
def test_weights_of_the_ridge_objective_fill_up_to_a_common_level(ridge: float, size: float):
    ratios = torch.tensor([0.95, 0.8, 0.5, 0.2, 0.01, 0.0], dtype=torch.float64)

    def filled(level: float) -> np.ndarray:
        return np.maximum(np.sqrt(ridge * ratios.numpy() / level) - ridge, 0)

    level = optimize.brentq(lambda x: filled(np.exp(x)).sum() - size, -60, 60, xtol=1e-14)
    np.testing.assert_allclose(ridge_weights(ratios, ridge, size), filled(np.exp(level)), rtol=1e-6, atol=1e-9)


def test_ridge_weights_refuse_values_without_a_minimum():
    with pytest.raises(TwofoldError, match="above 0"):
        ridge_weights(torch.ones(3), 0.0, 1.0)
    with pytest.raises(TwofoldError, match="do not differ"):
        ridge_weights(torch.zeros(3), 1.0, 1.0)


def test_map_satisfies_the_constraint_of_each_objective():
    total, between = covariances()
    within, found = total - between, directions(total, between)
    identity = torch.eye(6, dtype=torch.float64)
    a = found.map(within_weights(found.ratios))
    torch.testing.assert_close(a @ within @ a.T, identity)
    a = found.map(whitening_weights(found.ratios, 4))
    torch.testing.assert_close(a @ total @ a.T, identity[:4, :4])
    middle = (2 / (1 - found.ratios[2:4].mean())).item()  # between the third and the fourth direction
    a = found.map(threshold_weights(found.ratios, middle))
    kept = 1 - middle * (1 - found.ratios[:3]) / 2
    torch.testing.assert_close(a @ total @ a.T, torch.diag(kept))
    a = found.map(ridge_weights(found.ratios, 0.3, 2.0))
    torch.testing.assert_close((a @ total @ a.T).trace(), torch.tensor(2.0, dtype=torch.float64))


def test_whitening_within_groups_is_the_map_with_a_ridge_up_to_rotation_and_scale():
    total, between = covariances()
    within = total - between
    for shrinkage in (0.1, 0.5, 0.9):
        a = within_whitening(within)(shrinkage)
        mean = within.trace() / 6
        shrunk = (1 - shrinkage) * within / mean + shrinkage * torch.eye(6)
        torch.testing.assert_close(a @ shrunk @ a, torch.eye(6, dtype=torch.float64))
        found = directions(total, between, (shrinkage / (1 - shrinkage) * mean).item())
        b = found.map(within_weights(found.ratios))
        torch.testing.assert_close(a @ a, b.T @ b * mean / (1 - shrinkage))


def test_whitening_within_groups_becomes_the_identity():
    total, between = covariances()
    torch.testing.assert_close(within_whitening(total - between)(1.0), torch.eye(6, dtype=torch.float64))
    assert torch.equal(within_whitening(torch.zeros(4, 4))(0.1), torch.eye(4, dtype=torch.float64))
    singular = within_whitening(torch.diag(torch.tensor([1.0, 0.0])))(0.1)
    assert torch.isfinite(singular).all()
