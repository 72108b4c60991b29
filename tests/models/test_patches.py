"""Features from whitened patches and k-means centres."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from twofold.models import patches as module
from twofold.models.patches import FLAT, RIDGE, PatchFeatures, k_means, partial_whitening, sample_patches


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def pixels(count: int = 30, channels: int = 3, side: int = 13) -> Tensor:
    smooth = functional.avg_pool2d(torch.rand(count, channels, side + 2, side + 2, generator=generator()), 3, 1)
    return (255 * smooth).to(torch.uint8)


def normalise(images: Tensor) -> Tensor:
    return (images.float() - 127) / 50


@pytest.fixture
def fitted(monkeypatch: pytest.MonkeyPatch) -> PatchFeatures:
    monkeypatch.setattr(module, "SAMPLED", 800)
    layer = PatchFeatures(3, 13, centres=7)
    layer.fit(pixels(), normalise)
    return layer


def test_pooled_features_equal_the_definition_for_every_patch(fitted: PatchFeatures) -> None:
    images = normalise(pixels(4)).double()
    patches = functional.unfold(images, 6).transpose(1, 2)  # [N, 8 · 8, 108]
    patches = patches - patches.mean(-1, keepdim=True)
    patches = patches / (patches.square().mean(-1, keepdim=True) + FLAT).sqrt()
    whitened = patches @ fitted.filters.double().flatten(1).T - fitted.shift.double()
    distances = torch.cdist(whitened, fitted.centres.double())
    activation = (distances.mean(-1, keepdim=True) - distances).clamp(min=0).transpose(1, 2).unflatten(2, (8, 8))
    expected = functional.adaptive_avg_pool2d(activation, 4).flatten(1).sqrt()
    torch.testing.assert_close(fitted.pooled(images.float()).double(), expected, rtol=1e-3, atol=1e-3)


def test_sampled_patches_are_whitened_up_to_the_ridge(fitted: PatchFeatures) -> None:
    patches = sample_patches(normalise(pixels()), 6, torch.Generator().manual_seed(0))
    patches = patches - patches.mean(1, keepdim=True)
    patches = patches / (patches.square().mean(1, keepdim=True) + FLAT).sqrt()
    whitened = patches @ fitted.filters.flatten(1).T - fitted.shift
    torch.testing.assert_close(whitened.mean(0), torch.zeros(108), atol=1e-4, rtol=0)
    variances = torch.linalg.eigvalsh(torch.cov(patches.T))
    expected = variances / (variances + RIDGE * variances.mean())
    torch.testing.assert_close(
        torch.linalg.eigvalsh(torch.cov(whitened.T)), expected.sort().values, atol=1e-3, rtol=1e-3
    )


def test_fit_depends_only_on_the_images_and_the_seed(fitted: PatchFeatures) -> None:
    state = torch.get_rng_state()
    found = []
    for seed in (0, 0, 1):
        layer = PatchFeatures(3, 13, centres=7)
        layer.fit(pixels(), normalise, seed=seed)
        found.append(layer.state_dict())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(found[0][name], value) for name, value in found[1].items())
    assert all(torch.equal(found[0][name], value) for name, value in fitted.state_dict().items())
    assert not torch.equal(found[0]["centres"], found[2]["centres"])


def test_features_have_variance_1_in_the_mean_and_do_not_depend_on_the_batch(fitted: PatchFeatures) -> None:
    features = fitted(normalise(pixels()))
    assert features.shape == (30, fitted.width)
    torch.testing.assert_close(features.var(0, correction=0).mean(), torch.tensor(1.0), rtol=1e-3, atol=1e-3)
    many = fitted(normalise(pixels()).repeat(3, 1, 1, 1))  # more than a block
    torch.testing.assert_close(many[60:], features, rtol=1e-4, atol=1e-4)


def test_partial_whitening_leaves_a_power_of_each_variance() -> None:
    rows = torch.randn(50, 6, generator=generator()) * torch.tensor([8.0, 4, 2, 1, 0.5, 0.25])
    rows = rows - rows.mean(0)
    before = torch.linalg.eigvalsh(rows.T @ rows).flip(0)
    found = {power: rows @ partial_whitening(rows, 6, power, generator()).T for power in (0.0, 0.5, 1.0)}
    for power, features in found.items():
        after = torch.linalg.eigvalsh(features.T @ features).flip(0)
        expected = before ** (1 - power)
        torch.testing.assert_close(after / after.sum(), expected / expected.sum(), rtol=1e-3, atol=1e-4)
    # More features than images have directions: the rotation spreads the variance over all features.
    wide = rows @ partial_whitening(rows, 64, 0.0, generator()).T
    assert wide.var(0).max() < 6 * wide.var(0).mean()
    torch.testing.assert_close(
        functional.cosine_similarity(wide[0], wide[1:]), functional.cosine_similarity(rows[0], rows[1:])
    )


def test_k_means_finds_separate_clusters() -> None:
    means = 100 * torch.eye(4)
    points = means.repeat_interleave(50, 0) + torch.randn(200, 4, generator=generator())
    nearest = torch.cdist(means, k_means(points, 12, generator())).min(1).values
    assert (nearest < 3).all()


@pytest.mark.parametrize("side", [1, 2, 5, 8, 97])
def test_images_of_any_size_have_features(side: int) -> None:
    assert PatchFeatures(1, side)(torch.rand(2, 1, side, side)).shape == (2, 1024)


def test_blank_images_give_finite_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAMPLED", 300)
    layer = PatchFeatures(1, 8, centres=5)
    layer.fit(torch.zeros(6, 1, 8, 8, dtype=torch.uint8), normalise)
    assert all(value.isfinite().all() for value in layer.state_dict().values())
    assert layer(torch.rand(2, 1, 8, 8)).isfinite().all()
