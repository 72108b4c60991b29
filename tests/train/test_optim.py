"""Optimizers compared with step-by-step formulas, and schedules with their definitions."""

import math

import pytest
import torch
from torch import Tensor, nn

from twofold.config import RUN_KEYS, Config, resolve
from twofold.lars import LARS
from twofold.train.optim import (
    build_optimizer,
    learning_rates,
    load_optimizer_state,
    optimizer_state,
    parameter_groups,
    set_learning_rate,
)

CPU = torch.device("cpu")


def configured(**values: object) -> Config:
    return resolve(RUN_KEYS, {"user": values})


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 3)).double()


def test_lars_equals_a_loop_over_its_formulas() -> None:
    torch.manual_seed(0)
    weight, bias = torch.randn(4, 3).double(), torch.randn(4).double()
    parameters = [nn.Parameter(weight.clone()), nn.Parameter(bias.clone())]
    lr, momentum, eta, decay = 0.3, 0.9, 0.02, 1e-2
    groups = [
        {"params": parameters[:1], "weight_decay": decay},
        {"params": parameters[1:], "weight_decay": 0.0, "adapt": False},
    ]
    optimizer = LARS(groups, lr=torch.tensor(lr, dtype=torch.float64), momentum=momentum, eta=eta)
    expected, buffers = [weight.clone(), bias.clone()], [torch.zeros(4, 3).double(), torch.zeros(4).double()]
    for _ in range(5):
        gradients = [torch.randn(4, 3).double(), torch.randn(4).double()]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()
        w, g = expected[0], gradients[0]
        trust = eta * w.norm() / (g.norm() + decay * w.norm())
        step = (g + decay * w) * min(float(trust) / lr, 1.0)
        for i, direction in enumerate((step, gradients[1])):
            buffers[i] = momentum * buffers[i] + direction
            expected[i] = expected[i] - lr * buffers[i]
    for parameter, value in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.detach(), value, rtol=1e-10, atol=1e-12)


def test_lars_takes_a_plain_step_if_the_trust_ratio_is_large() -> None:
    weight = nn.Parameter(torch.full((2, 2), 100.0))
    optimizer = LARS([{"params": [weight]}], lr=0.1, momentum=0.0, eta=0.02)
    weight.grad = torch.full((2, 2), 1e-3)
    optimizer.step()
    torch.testing.assert_close(weight.detach(), torch.full((2, 2), 100.0 - 0.1 * 1e-3))


@pytest.mark.parametrize("which", ["weight", "gradient"])
def test_lars_gives_no_nan_for_zero_weights_or_gradients(which: str) -> None:
    weight = nn.Parameter(torch.zeros(2, 2) if which == "weight" else torch.ones(2, 2))
    optimizer = LARS([{"params": [weight]}], lr=0.1, momentum=0.9, eta=0.02)
    weight.grad = torch.zeros(2, 2) if which == "gradient" else torch.ones(2, 2)
    optimizer.step()
    torch.testing.assert_close(weight.detach(), torch.full((2, 2), -0.1 if which == "weight" else 1.0))


@pytest.mark.parametrize("decay_all", [False, True])
def test_biases_and_norms_are_in_a_separate_parameter_group(decay_all: bool) -> None:
    module = network()
    config = configured(optimizer="lars", weight_decay=0.1, decay_all=decay_all)
    weights, vectors = parameter_groups(config, module.named_parameters())
    assert {id(p) for p in weights["params"]} == {id(module[0].weight), id(module[2].weight)}
    assert len(vectors["params"]) == 4
    assert weights["weight_decay"] == 0.1
    assert vectors["weight_decay"] == (0.1 if decay_all else 0.0)
    assert vectors["adapt"] is False


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "lars"])
def test_steady_network_has_a_constant_learning_rate(name: str) -> None:
    """The result equals that of two optimizers: one with the schedule, and one with a constant learning rate."""
    config = configured(optimizer=name, lr=0.05, weight_decay=0.1)
    rates = [0.05, 0.02, 0.0]

    def gradients(module: nn.Module, step: int) -> None:
        torch.manual_seed(step)
        for parameter in module.parameters():
            parameter.grad = torch.randn_like(parameter)

    torch.manual_seed(1)
    one, two = network(), network()
    two.load_state_dict(one.state_dict())
    combined = build_optimizer(config, one.named_parameters(), CPU, one[2])
    separate = [build_optimizer(config, [pair], CPU) for pair in two.named_parameters()]
    is_constant = [name.startswith("2.") for name, _ in two.named_parameters()]
    for step, rate in enumerate(rates):
        gradients(one, step), gradients(two, step)
        set_learning_rate(combined, torch.tensor(rate))
        combined.step()
        for optimizer, kept in zip(separate, is_constant, strict=True):
            set_learning_rate(optimizer, torch.tensor(0.05 if kept else rate))
            optimizer.step()
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "lars"])
def test_restored_optimizer_continues_bit_identically(name: str) -> None:
    config = configured(optimizer=name, lr=0.05, weight_decay=0.1)
    rates = learning_rates(configured(epochs=1, lr=0.05, warmup_epochs=0), 6)

    def run(module: nn.Module, steps: range, state: dict[int, dict[str, Tensor]] | None) -> torch.optim.Optimizer:
        optimizer = build_optimizer(config, module.named_parameters(), CPU)
        if state is not None:
            load_optimizer_state(optimizer, state)
        for step in steps:
            set_learning_rate(optimizer, rates[step])
            optimizer.zero_grad()
            x = torch.randn(8, 5, generator=torch.Generator().manual_seed(step)).double()
            module(x).square().sum().backward()
            optimizer.step()
        return optimizer

    torch.manual_seed(1)
    whole, halves = network(), network()
    halves.load_state_dict(whole.state_dict())
    run(whole, range(6), None)
    state = optimizer_state(run(halves, range(3), None))
    run(halves, range(3, 6), state)
    for a, b in zip(whole.parameters(), halves.parameters(), strict=True):
        assert torch.equal(a, b)


def test_cosine_schedule_with_warmup() -> None:
    rates = learning_rates(configured(epochs=10, warmup_epochs=2, lr=0.4, batch_size=512), 5)
    assert rates.shape == (50,)
    for step in range(50):
        expected = 0.8 * (step + 1) / 10 if step < 10 else 0.4 * (1 + math.cos(math.pi * (step - 10) / 40))
        assert rates[step].item() == pytest.approx(expected, rel=1e-12)


def test_cosine_schedule_may_end_after_or_before_the_run() -> None:
    keys = {"epochs": 100, "warmup_epochs": 10, "schedule": "cosine"}
    longer = learning_rates(Config(**keys, schedule_epochs=400), 2)
    whole = learning_rates(Config(**keys | {"epochs": 400}), 2)
    assert len(longer) == 200
    assert torch.equal(longer, whole[:200])
    assert longer[-1] / longer.max() == pytest.approx(0.87, abs=0.01)
    shorter = learning_rates(Config(**keys, schedule_epochs=50), 2)
    assert (shorter[100:] == 0).all()
    assert (shorter[20:100] > 0).all()


def test_restarts_and_constant_schedules() -> None:
    rates = learning_rates(configured(epochs=9, warmup_epochs=0, schedule="restarts", restart_epochs=3, lr=1.0), 4)
    assert torch.equal(rates[:12], rates[12:24])
    assert rates[0] == rates[12] == 1.0
    assert rates[11] < 0.05
    rates = learning_rates(configured(epochs=4, warmup_epochs=1, schedule="constant", lr=0.5), 4)
    assert rates[:4].tolist() == [0.125, 0.25, 0.375, 0.5]
    assert set(rates[4:].tolist()) == {0.5}


def test_warmup_longer_than_the_run_only_warms_up() -> None:
    rates = learning_rates(configured(epochs=2, warmup_epochs=10, lr=1.0), 5)
    assert rates.tolist() == pytest.approx([(step + 1) / 10 for step in range(10)])


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_optimizer_state_has_the_memory_format_of_its_weight(kind: type[torch.optim.Optimizer]) -> None:
    """Fused optimizers process memory linearly: contiguous state would mix up elements of a channels-last weight."""
    options = {"lr": 0.1, "fused": True} | ({"momentum": 0.9} if kind is torch.optim.SGD else {})
    gradients = [torch.randn(4, 3, 3, 3).contiguous(memory_format=torch.channels_last) for _ in range(4)]

    def steps(weight: nn.Parameter, optimizer: torch.optim.Optimizer, numbers: range) -> None:
        for number in numbers:
            weight.grad = gradients[number].clone(memory_format=torch.preserve_format)
            optimizer.step()

    start = torch.randn(4, 3, 3, 3).contiguous(memory_format=torch.channels_last)
    whole, halves = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    steps(whole, kind([whole], **options), range(4))
    first = kind([halves], **options)
    steps(halves, first, range(2))
    saved = {0: {name: value.clone().contiguous() for name, value in optimizer_state(first)[0].items()}}
    second = kind([halves], **options)
    load_optimizer_state(second, saved)
    steps(halves, second, range(2, 4))
    assert torch.equal(whole, halves)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_optimizers_equal_loops_over_their_formulas(name: str) -> None:
    """With channels-last images, gradients are channels-last while the weight is contiguous."""
    decay, rates, (beta, beta2), momentum = 0.1, (0.05, 0.04, 0.02), (0.8, 0.95), 0.7
    config = configured(optimizer=name, weight_decay=decay, betas=(beta, beta2), momentum=momentum)
    torch.manual_seed(2)
    convolution = nn.Conv2d(3, 4, 3, bias=False).double()
    images = torch.randn(5, 3, 6, 6).double().contiguous(memory_format=torch.channels_last)
    expected = convolution.weight.detach().clone()
    first, second = torch.zeros_like(expected), torch.zeros_like(expected)
    optimizer = build_optimizer(config, convolution.named_parameters(), CPU)
    for step, rate in enumerate(rates, start=1):
        parameter_copy = expected.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(nn.functional.conv2d(images, parameter_copy).square().mean(), parameter_copy)
        if name == "adamw":
            expected = expected - rate * decay * expected
        else:
            gradient = gradient + decay * expected
        if name == "sgd":
            first = momentum * first + gradient
            expected = expected - rate * first
        else:
            first = beta * first + (1 - beta) * gradient
            second = beta2 * second + (1 - beta2) * gradient**2
            scale = (second / (1 - beta2**step)).sqrt() + 1e-8
            expected = expected - rate * first / (1 - beta**step) / scale

        set_learning_rate(optimizer, torch.tensor(rate))
        optimizer.zero_grad()
        convolution(images).square().mean().backward()
        optimizer.step()
        torch.testing.assert_close(convolution.weight.detach(), expected, rtol=1e-6, atol=1e-8)


def test_warmup_may_end_within_an_epoch() -> None:
    rates = learning_rates(configured(epochs=2, warmup_epochs=0.5, lr=1.0, batch_size=256), 8)
    assert rates[:4].tolist() == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert rates[4] == 1


def test_restarts_count_from_the_end_of_the_warmup() -> None:
    config = configured(epochs=7, warmup_epochs=1, schedule="restarts", restart_epochs=3, lr=1.0, batch_size=256)
    rates = learning_rates(config, 4)
    assert rates[4] == rates[16] == 1
    for step in range(4, 28):
        assert rates[step].item() == pytest.approx((1 + math.cos(math.pi * ((step - 4) % 12) / 12)) / 2)


def test_lars_uses_the_configured_trust_coefficient() -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    optimizer = build_optimizer(configured(optimizer="lars", lars_eta=0.5), [("w", weight)], torch.device("cpu"))
    assert optimizer.param_groups[0]["eta"] == 0.5


def test_lars_decays_a_weight_with_zero_gradient_by_a_plain_step() -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    optimizer = LARS([{"params": [weight], "weight_decay": 1.0}], lr=0.1, momentum=0.0, eta=0.02)
    weight.grad = torch.zeros(2, 2)
    optimizer.step()
    torch.testing.assert_close(weight.detach(), torch.full((2, 2), 0.9))
