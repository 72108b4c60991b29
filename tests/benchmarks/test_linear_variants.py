"""The linear variants on images: gradients, criteria and components against independent computations."""

import pytest
import torch

from benchmarks import linear_variants


@pytest.mark.parametrize("variant", sorted(linear_variants.VARIANTS))
def test_slopes_are_those_of_the_variants_of_the_claims(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(linear_variants, "OUTPUTS", 3)
    x = tuple(linear_variants.components(torch.randn(20, m).double(), 1.0) for m in (7, 5))  # of different widths
    w = (torch.randn(3, 7).double(), torch.randn(3, 5).double())
    linear_variants.refuse_wrong_slopes(variant, x, w)
    quick, exact = linear_variants.VARIANTS[variant]
    monkeypatch.setitem(linear_variants.VARIANTS, variant, (lambda w, of: (quick(w, of)[0], w), exact))
    with pytest.raises(AssertionError):
        linear_variants.refuse_wrong_slopes(variant, x, w)


def test_criteria_are_the_first_times_at_which_a_share_is_reached() -> None:
    losses = torch.tensor([10.0, 6.0, 5.0, 0.6, 0.4, 0.0])
    last = torch.tensor([0.0, 0.1, 0.5, 0.89, 0.95, 1.0])
    found = linear_variants.times(losses, torch.stack([torch.ones(6), last], dim=1), lr=0.5)
    step = linear_variants.EVERY * 0.5
    assert found == {"half of the fall": 2 * step, "95 % of the fall": 4 * step, "10th eigenvalue": 4 * step}


def test_components_keep_inner_products_and_a_share_of_the_variance() -> None:
    torch.manual_seed(0)
    view = torch.randn(12, 30).double() * torch.arange(1, 31)
    centred = view - view.mean(dim=0)
    kept = linear_variants.components(view, 1.0)
    assert kept.shape == (12, 11)  # twelve centred rows span eleven dimensions
    torch.testing.assert_close(kept @ kept.T, centred @ centred.T)
    some = linear_variants.components(view, 0.5)
    share = some.square().sum() / centred.square().sum()
    assert 0.5 <= share < 1
    assert (share - some[:, -1].square().sum() / centred.square().sum()) < 0.5  # one component less is not enough


def test_a_crop_of_a_constant_image_is_constant_and_a_small_one_shows_a_part() -> None:
    torch.manual_seed(0)
    constant = linear_variants.crop(torch.full((2, 3, 32, 32), 0.3), 0.08)
    torch.testing.assert_close(constant, torch.full_like(constant, 0.3), atol=1e-6, rtol=0)
    ramp = torch.arange(32.0).expand(40, 3, 32, 32)
    extents = [(row.max() - row.min()).item() for row in linear_variants.crop(ramp, 0.08)]
    assert min(extents) < 15 < max(extents) <= 31
