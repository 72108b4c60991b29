"""BatchNorm of several views in one pass, compared with torch's BatchNorm on one view after another."""

import copy

import pytest
import torch
from torch import Tensor, nn

from twofold.models import BatchNorm, build_encoder, fuse, may_go_together, mlp, together
from twofold.models.norm import APART, views_in_batch

SHAPES = [(8, 64, 4, 4), (6, 48, 3, 5), (10, 130), (256, 16, 8, 8)]


def twin(norm: BatchNorm, images: bool) -> nn.Module:
    """torch's module with the same parameters, in float64."""
    kind = nn.BatchNorm2d if images else nn.BatchNorm1d
    reference = kind(norm.num_features, affine=norm.affine).to(next(norm.buffers()).device)
    reference.load_state_dict(norm.state_dict())
    return reference.double()


def random_norm(channels: int, relu: bool, affine: bool) -> BatchNorm:
    norm = BatchNorm(channels, relu=relu, affine=affine)
    if affine:
        with torch.no_grad():
            norm.weight.uniform_(-1, 2)
            norm.bias.normal_()
    return norm


def inputs(shape: tuple[int, ...], count: int) -> list[Tensor]:
    """Random inputs whose channels differ in scale and mean."""
    column = (1, -1, *[1] * (len(shape) - 2))
    scale, mean = torch.rand(shape[1]).view(column) * 3 + 0.5, torch.randn(shape[1]).view(column) * 2
    return [torch.randn(shape) * scale + mean for _ in range(count)]


def compare(
    norm: BatchNorm, shape: tuple[int, ...], views: int, residual: bool, dtype: torch.dtype, tolerance: float
) -> None:
    """Compare outputs, all gradients and running statistics. Errors are relative to the norm of the expected values."""
    device = next(norm.buffers()).device
    reference = twin(norm, len(shape) == 4)
    x, skip, dy = (value.to(device, dtype) for value in inputs(shape, 3))
    ours = [value.clone().requires_grad_() for value in (x, skip)]
    right = [value.double().requires_grad_() for value in (x, skip)]

    expected = torch.cat([reference(view) for view in right[0].chunk(views)])
    expected = expected + right[1] if residual else expected
    if norm.relu:
        # Near the kink of the ReLU, rounding decides which gradient a value gets. Such values are left out.
        dy[expected.abs() < 8 * torch.finfo(dtype).eps * expected.abs().max()] = 0
        expected = expected.relu()
    expected.backward(dy.double())
    with views_in_batch(views):
        y = norm(ours[0], ours[1] if residual else None)
    y.backward(dy)

    pairs = [(y, expected), (norm.running_mean, reference.running_mean), (norm.running_var, reference.running_var)]
    parameters = zip(norm.parameters(), reference.parameters(), strict=True)
    pairs += [(ours[0].grad, right[0].grad), *((mine.grad, theirs.grad) for mine, theirs in parameters)]
    if residual:
        pairs.append((ours[1].grad, right[1].grad))
    for mine, theirs in pairs:
        assert mine is not None
        assert theirs is not None
        assert (mine.double() - theirs).norm() <= tolerance * theirs.norm()
    assert norm.num_batches_tracked == reference.num_batches_tracked == views


CASES = [(False, False, True), (True, False, True), (True, True, True), (False, True, True), (False, False, False)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("views", [1, 2])
@pytest.mark.parametrize(("relu", "residual", "affine"), CASES)
def test_views_in_one_pass_equal_views_one_after_another(
    shape: tuple[int, ...], views: int, relu: bool, residual: bool, affine: bool
) -> None:
    torch.manual_seed(0)
    compare(random_norm(shape[1], relu, affine), shape, views, residual, torch.float32, 2e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the fused kernels need CUDA")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("views", [1, 2])
@pytest.mark.parametrize(("relu", "residual", "affine"), CASES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.bfloat16, 4e-3)])
def test_fused_kernels_equal_batch_norm_of_torch(
    shape: tuple[int, ...],
    views: int,
    relu: bool,
    residual: bool,
    affine: bool,
    dtype: torch.dtype,
    tolerance: float,
) -> None:
    torch.manual_seed(0)
    norm = random_norm(shape[1], relu, affine).cuda()
    fuse(norm)
    compare(norm, shape, views, residual, dtype, tolerance)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the fused kernels need CUDA")
def test_fused_network_has_the_gradients_of_the_plain_network() -> None:
    """A whole network with skip connections. Its error compared with float64 is about that of the plain network."""
    torch.manual_seed(0)
    plain = build_encoder("resnet18", channels=3, stem="small", image_size=32).cuda()
    fused, exact = copy.deepcopy(plain), copy.deepcopy(plain).double()
    fuse(fused)
    x, w = torch.randn(2, 32, 3, 16, 16, device="cuda"), torch.randn(2, 32, 512, device="cuda")
    for network in (plain, fused, exact):
        kind = next(network.parameters()).dtype
        (together(network, x.to(kind)) * w).sum().backward()

    def error(network: nn.Module) -> float:
        pairs = zip(network.parameters(), exact.parameters(), strict=True)
        return max(((a.grad.double() - b.grad).norm() / b.grad.norm()).item() for a, b in pairs)

    assert error(fused) <= 3 * error(plain) + 1e-4


def test_together_equals_one_call_per_view() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(build_encoder("resnet18", channels=3, stem="small", image_size=32), mlp(512, (32, 8)))
    alone = copy.deepcopy(network)
    views = torch.randn(3, 4, 3, 16, 16)
    torch.testing.assert_close(together(network, views), torch.stack([alone(v) for v in views]), rtol=1e-4, atol=1e-4)
    for mine, theirs in zip(network.buffers(), alone.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_together_resets_the_number_of_views() -> None:
    """Other code may use the network later with batches of a single view."""
    network = mlp(4, (8, 2))
    together(network, torch.randn(2, 3, 4))
    assert network[1].views == 1
    with pytest.raises(RuntimeError):
        together(network, torch.randn(2, 3, 5))
    assert network[1].views == 1


class MixesSamples(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(dim=0)


@pytest.mark.parametrize("part", [MixesSamples(), nn.BatchNorm1d(4), nn.Dropout(0.5)])
def test_modules_that_may_mix_samples_get_views_one_by_one(part: nn.Module) -> None:
    assert may_go_together(mlp(4, (4, 4)))
    assert not may_go_together(nn.Sequential(nn.Linear(4, 4), part))
    assert type(part) not in APART


def test_evaluation_uses_running_statistics_for_any_batch() -> None:
    norm = random_norm(4, relu=True, affine=True).eval()
    rows = torch.randn(6, 4)
    torch.testing.assert_close(norm(rows), torch.cat([norm(row[None]) for row in rows]))
    assert norm.num_batches_tracked == 0
