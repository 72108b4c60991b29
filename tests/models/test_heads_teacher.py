"""Projectors and the EMA teacher."""

import pytest
import torch
from torch import nn

from twofold.models import Teacher, mlp, small_weights


def test_mlp_has_norm_and_relu_between_layers_only() -> None:
    torch.manual_seed(0)
    rows = torch.randn(6, 8)
    layers = [nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)]
    ours, reference = mlp(8, (16, 4)), nn.Sequential(*layers)
    for mine, theirs in zip(ours.parameters(), reference.parameters(), strict=True):
        theirs.data.copy_(mine)
    torch.testing.assert_close(ours(rows), reference(rows))


def test_mlp_can_end_with_a_norm_without_parameters() -> None:
    projector = mlp(8, (4,), last_norm=True)
    assert [tuple(parameter.shape) for parameter in projector.parameters()] == [(4, 8)]
    rows = projector(torch.randn(64, 8))
    torch.testing.assert_close(rows.mean(0), torch.zeros(4), atol=1e-6, rtol=0)
    torch.testing.assert_close(rows.var(0, correction=0), torch.ones(4), atol=1e-3, rtol=0)


def test_mlp_without_layers_changes_nothing() -> None:
    assert mlp(8, ())(torch.eye(8)).equal(torch.eye(8))
    assert [type(layer) for layer in mlp(8, (6, 4), norm=False, activation=nn.GELU)] == [nn.Linear, nn.GELU, nn.Linear]
    assert [layer.bias is not None for layer in mlp(8, (6, 4), norm=False) if isinstance(layer, nn.Linear)] == [
        True
    ] * 2


def test_teacher_is_an_exponential_moving_average() -> None:
    student = nn.Linear(3, 2).double()
    teacher = Teacher(student)
    expected = student.weight.detach().clone()
    for step, momentum in enumerate([0.9, 0.5, 1.0, 0.0]):
        with torch.no_grad():
            student.weight.add_(torch.full_like(student.weight, step + 1.0))
        teacher.update(student.parameters(), torch.tensor(momentum, dtype=torch.float64))
        expected = momentum * expected + (1 - momentum) * student.weight.detach()
        torch.testing.assert_close(teacher.network.weight, expected, rtol=1e-14, atol=0)


def test_teacher_has_no_gradient_and_changes_only_in_update() -> None:
    student = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    teacher = Teacher(student)
    before = [p.clone() for p in teacher.parameters()]
    output = teacher(torch.randn(8, 3))
    assert not output.requires_grad
    assert all(not p.requires_grad for p in teacher.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, teacher.parameters(), strict=True))
    assert student[1].num_batches_tracked == 0
    assert teacher.network[1].num_batches_tracked == 1


def test_small_weights_have_zero_bias_and_a_standard_deviation_of_0_02() -> None:
    torch.manual_seed(0)
    head = mlp(64, (256, 128), norm=False, activation=nn.GELU).apply(small_weights)
    for layer in head:
        if isinstance(layer, nn.Linear):
            assert not layer.bias.any()
            assert layer.weight.std().item() == pytest.approx(0.02, rel=0.05)
