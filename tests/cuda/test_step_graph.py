"""The CUDA-graph step: the order of its operations on a CPU, and the same results as the plain step on CUDA."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import running
from twofold.cuda import step_graph
from twofold.cuda.bf16_weights import Bf16Weights
from twofold.cuda.step_graph import LEAST_STEPS, WARM_UP, StepGraph, worth_compiling
from twofold.cuda.streams import CannotRecord
from twofold.data.load import read_data
from twofold.data.loader import Loader
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.models import build_encoder
from twofold.train import optim
from twofold.train.trainer import Trainer
from twofold.verbs import pretrain

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
CPU = torch.device("cpu")


class SynchronousStreams:
    """A stand-in for CUDA streams that runs every operation at once."""

    def __init__(self, can_record: bool = True, waits: bool = False):
        self.can_record, self.host_waits, self.recordings, self.replays = can_record, waits, 0, 0

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        yield

    def join(self) -> None:
        pass

    def first(self, step: Callable[[], None]) -> None:
        step()

    def waits(self, step: Callable[[], None]) -> bool:
        step()
        return self.host_waits

    def record(self, step: Callable[[], None]) -> Callable[[], None]:
        self.recordings += 1
        if not self.can_record:
            raise CannotRecord("something waits for the device")

        def again() -> None:
            self.replays += 1
            step()

        return again


def trainer_with_step_graph(streams: SynchronousStreams, **overrides: object) -> Trainer:
    trainer = running.trainer("byol", **overrides)
    trainer.run_step = StepGraph(trainer.loader, trainer.make_views, trainer.train_step, trainer.clock, streams)
    return trainer


def weights_after(trainer: Trainer, steps: list[int]) -> dict[str, Tensor]:
    trainer.method.train()
    for step in steps:
        trainer.clock.fill_(step)
        trainer.take_step(step)
    return trainer.method.state_dict()


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize(
    ("can_record", "waits", "on_device"),
    [(True, False, True), (False, False, True), (True, True, True), (True, False, False)],
)
def test_computing_views_ahead_changes_no_weight(
    drop_last: bool, can_record: bool, waits: bool, on_device: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two epochs. With drop_last=false each ends with a short batch, and the next views cannot be computed ahead."""
    monkeypatch.setattr(Loader, "on_device", on_device)
    streams = SynchronousStreams(can_record, waits)
    keys = {"batch_size": 256, "drop_last": drop_last}
    fast, plain = trainer_with_step_graph(streams, **keys), running.trainer("byol", **keys)
    steps = list(range(2 * plain.loader.steps_per_epoch))
    expected = weights_after(plain, steps)
    assert all(torch.equal(expected[name], value) for name, value in weights_after(fast, steps).items())
    short = 0 if drop_last else 2
    assert streams.recordings == (0 if waits else 1)
    assert streams.replays == (len(steps) - short - WARM_UP if can_record and not waits else 0)
    assert fast.observers.means.read() == plain.observers.means.read()


def test_steps_in_any_order_give_the_same_weights() -> None:
    steps = [0, 1, 2, 3, 4, 2, 3, 7]
    fast = weights_after(trainer_with_step_graph(SynchronousStreams()), steps)
    expected = weights_after(running.trainer("byol"), steps)
    assert all(torch.equal(expected[name], value) for name, value in fast.items())


def test_only_long_runs_on_cuda_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not worth_compiling(None, CPU, 10**9)
    assert not worth_compiling(False, CPU, 10**9)
    with pytest.raises(TwofoldError, match="compile=true needs a CUDA device, not cpu"):
        worth_compiling(True, CPU, 10**9)
    cuda = torch.device("cuda")
    monkeypatch.setattr(step_graph, "what_is_missing", lambda _: None)
    assert [worth_compiling(None, cuda, steps) for steps in (LEAST_STEPS - 1, LEAST_STEPS)] == [False, True]
    assert [worth_compiling(wanted, cuda, 1) for wanted in (True, False)] == [True, False]
    monkeypatch.setattr(step_graph, "what_is_missing", lambda _: "a compiler")
    assert not worth_compiling(None, cuda, LEAST_STEPS)
    with pytest.raises(TwofoldError, match="compile=true needs a compiler"):
        worth_compiling(True, cuda, 1)


def test_error_of_torch_compile_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiler(*_: object, **__: object) -> None:
        raise RuntimeError("Python.h: no such file\nmuch more")

    monkeypatch.setattr(step_graph.importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr(torch, "compile", compiler)
    assert step_graph.what_is_missing(torch.device("cuda")) == "what torch.compile needs (Python.h: no such file)"
    monkeypatch.setattr(step_graph.importlib.util, "find_spec", lambda _: None)
    assert "Triton" in str(step_graph.what_is_missing(torch.device("cuda")))


def test_compile_on_a_cpu_raises_an_error() -> None:
    with pytest.raises(TwofoldError, match="compile=true needs a CUDA device"):
        running.trainer(compile=True, device="cpu")


def test_bf16_weight_copies_give_the_gradients_of_autocast() -> None:
    """Gradients are bit-identical. Weights that were not used get no gradient."""
    torch.manual_seed(0)
    network = nn.ModuleList([build_encoder("conv", channels=3, stem="small", image_size=32), nn.Linear(4, 4)])
    network.forward = lambda x: network[0](x)  # type: ignore[method-assign]
    x = torch.randn(8, 3, 8, 8)

    def gradients(call: Callable[[Tensor], Tensor]) -> dict[str, Tensor | None]:
        network.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = call(x)
        output.float().square().sum().backward()
        if isinstance(call, Bf16Weights):
            call.collect_gradients()
        return {name: parameter.grad for name, parameter in network.named_parameters()}

    expected = {name: None if grad is None else grad.clone() for name, grad in gradients(network).items()}
    copies = Bf16Weights(network, [network], torch.bfloat16)
    copies.collect_gradients()  # does nothing without gradients
    for _ in range(2):  # the second step must not see the gradients of the first
        for name, gradient in gradients(copies).items():
            assert (gradient is None) == (expected[name] is None) == name.startswith("1.")
            assert gradient is None or torch.equal(gradient, expected[name])


def test_copies_written_by_a_kernel_are_used_until_torch_changes_the_weight() -> None:
    linear = nn.Linear(3, 2, bias=False)
    copies = Bf16Weights(linear, [linear], torch.bfloat16)
    copy, x = copies.copy_of(linear.weight), torch.eye(3, dtype=torch.bfloat16)
    assert copy is not None
    assert torch.equal(copies(x), linear.weight.T.bfloat16())
    copy.grad = torch.ones_like(copy)
    copy.detach().view(torch.int16).numpy()[:] = 0  # like a kernel whose writes torch does not see
    assert torch.equal(copies(x), linear.weight.T.bfloat16())
    copy.detach().view(torch.int16).numpy()[:] = 0
    copies.moved()
    assert copy.grad is None
    assert not copies(x).any()
    with torch.no_grad():
        linear.weight.mul_(2)
    assert torch.equal(copies(x), linear.weight.T.bfloat16())
    assert copies.copy_of(nn.Parameter(linear.weight.data)) is None


def gradients(method: str, **overrides: object) -> Tensor:
    """Gradients of all weights, read from the momentum buffers after a few steps.

    The last steps are replayed if there is a CUDA graph. The learning rate is so low that the weights do not change.
    """
    keys = {"device": "cuda", "batch_size": 256, "epochs": 20, "encoder": "resnet18", "lr": 1e-12}
    keys |= {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.0}
    trainer = running.trainer(method, **keys | overrides)
    trainer.method.train()
    for step in range(WARM_UP + 2):
        trainer.take_step(step)
    assert not isinstance(trainer.run_step, StepGraph) or trainer.run_step.refused is None
    return torch.cat([state["momentum_buffer"].double().flatten() for state in trainer.optimizer.state.values()])


@CUDA
@pytest.mark.parametrize(
    "method", ["frossl", "simclr", "alpha-cl", "vicreg", "byol", "isoloss", "diet", "s-diet", "moco", "swav"]
)
def test_compiled_step_is_as_accurate_as_the_plain_step(method: str) -> None:
    """Both differ from float32 by the rounding of bfloat16."""
    exact = gradients(method, compile=False, precision="float32")
    plain, compiled = (gradients(method, compile=compiled) for compiled in (False, True))
    errors = [((value - exact).norm() / exact.norm()).item() for value in (plain, compiled)]
    assert errors[1] <= 1.2 * errors[0] + 1e-3


@CUDA
def test_step_that_waits_for_the_gpu_runs_without_a_graph() -> None:
    trainer = running.trainer("directpred", device="cuda", compile=True, exponent=0.3)
    trainer.method.train()
    for step in range(WARM_UP + 3):
        trainer.take_step(step)
    assert isinstance(trainer.run_step, StepGraph)
    assert trainer.run_step.refused
    assert trainer.observers.means.read()["loss"] == pytest.approx(0, abs=10)


@CUDA
@pytest.mark.parametrize("keys", [{}, {"clip": 1.0}, {"pieces": 2}, {"optimizer": "sgd", "momentum": 0.0, "clip": 1.0}])
def test_bf16_copies_equal_their_weights_after_replays_and_short_batches(keys: dict[str, object]) -> None:
    """The learning rate is high enough to change the weights."""
    trainer = running.trainer("byol", device="cuda", compile=True, batch_size=256, drop_last=False, epochs=20, **keys)
    trainer.method.train()
    for step in range(3 * trainer.loader.steps_per_epoch):
        trainer.take_step(step)
    assert isinstance(trainer.run_step, StepGraph)
    assert trainer.run_step.refused is None
    copies = trainer.train_step.weight_copies
    assert isinstance(copies, Bf16Weights)
    for name in copies.trained:
        assert torch.equal(copies.copies[name], copies.masters[name].bfloat16()), name
    assert trainer.observers.means.read()["loss"] == pytest.approx(0, abs=10)


@CUDA
def test_step_never_waits_for_the_gpu() -> None:
    trainer = running.trainer("byol", device="cuda", compile=True)
    trainer.method.train()
    for step in range(WARM_UP + 2):
        trainer.take_step(step)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for step in range(WARM_UP + 2, WARM_UP + 6):
            trainer.take_step(step)
    finally:
        torch.cuda.set_sync_debug_mode("default")


class Layers(nn.Module):
    """All kinds of weights: large, tiny, channels-last, zero, and without a bf16 copy."""

    def __init__(self, large: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList([nn.Conv2d(3, 64, 3), nn.Conv2d(64, 32, 1), nn.Linear(300, 70), nn.BatchNorm1d(7)])
        self.large = nn.Parameter(torch.randn(3, large))
        self.zero = nn.Parameter(torch.zeros(4, 4))


def after_steps(
    optimizer: str, weight_decay: float, device: str, large: int, dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    """Weights and optimizer state, in float64, after four steps with random gradients.

    The first step is torch's own on a CPU. The others are torch's own on a CPU, or the fused step on CUDA. The learning
    rate of one layer is constant. In the last step one weight has a gradient of its own and one of its copy, so that
    torch's own optimizer has to step it. This is not tested with Adam, whose CUDA kernel computes 1 − β^t in float32.
    """
    torch.manual_seed(0)
    layers = Layers(large).to(dtype, memory_format=torch.channels_last)
    config = running.trainer(optimizer=optimizer, weight_decay=weight_decay, decay_all=True).config
    constant_lr_layer = layers.parts[2]
    built = optim.build_optimizer(config, list(layers.named_parameters()), torch.device("cpu"), constant_lr_layer)
    step, copies = torch_step(built, layers)
    for number in range(4):
        if number == 1 and device == "cuda":
            move_to_cuda(layers, built)
            step, copies = fused_step(built, layers)
        layers.zero_grad()
        for weight in layers.parameters():
            copy = copies.copy_of(weight)
            target = weight if copy is None else copy
            target.grad = torch.randn(weight.shape).to(target).contiguous()
        if number == 3 and optimizer in ("lars", "sgd"):
            layers.parts[2].bias.grad = torch.ones_like(layers.parts[2].bias)
        optim.set_learning_rate(built, torch.tensor(0.3 / (number + 1)))
        step()
        assert all(copy.grad is None for copy in copies.copies.values())
        for name, copy in copies.copies.items():
            assert torch.equal(copy, copies.masters[name].bfloat16())
    assert device == "cpu" or step._plans  # otherwise the kernels were not used
    moments = [value for state in built.state.values() for value in state.values()]
    return [tensor.detach().double().cpu() for tensor in (*layers.parameters(), *moments)]


def move_to_cuda(layers: nn.Module, built: torch.optim.Optimizer) -> None:
    """Move the layers and the state of the optimizer to CUDA."""
    layers.cuda()
    for group in built.param_groups:
        group["lr"] = group["lr"].cuda()
    for state in built.state.values():
        state.update({name: value.cuda() for name, value in state.items()})


def fused_step(built: torch.optim.Optimizer, layers: nn.Module) -> tuple[Callable[[], None], Bf16Weights]:
    from twofold.cuda.fused_optimizer import FusedStep

    copies = copies_of(layers)
    return FusedStep(built, copies), copies


def torch_step(built: torch.optim.Optimizer, layers: nn.Module) -> tuple[Callable[[], None], Bf16Weights]:
    copies = copies_of(layers)

    def step() -> None:
        copies.collect_gradients()
        built.step()
        copies.refresh(copies.trained)

    return step, copies


def copies_of(layers: nn.Module) -> Bf16Weights:
    copies = Bf16Weights(layers, [layers], torch.bfloat16)
    copies.refresh(list(copies.masters))
    return copies


@CUDA
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
@pytest.mark.parametrize("optimizer", ["lars", "sgd", "adam", "adamw"])
def test_fused_step_equals_the_step_of_the_optimizer(optimizer: str, weight_decay: float) -> None:
    """Its error compared with float64 is about that of torch's own step in float32."""
    from twofold.cuda.fused_optimizer import BLOCK, SUMS

    large = 2 * BLOCK * SUMS // 3 + 5  # more blocks than one pass sums
    exact = after_steps(optimizer, weight_decay, "cpu", large, torch.float64)
    plain, fused = (after_steps(optimizer, weight_decay, device, large) for device in ("cpu", "cuda"))
    for value, near, ours in zip(exact, plain, fused, strict=True):
        rounding = 2e-7 * value.abs().max()
        assert (ours - value).abs().max() <= 1.5 * (near - value).abs().max() + rounding


@CUDA
@pytest.mark.parametrize("channels", [1, 3])
def test_first_convolution_as_a_matrix_product_equals_conv2d(channels: int) -> None:
    from twofold.cuda import stem_kernels

    torch.manual_seed(0)
    conv = nn.Conv2d(channels, 64, 3, 1, 1, bias=False).cuda()
    x = torch.randn(16, channels, 8, 8, device="cuda").contiguous(memory_format=torch.channels_last)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert stem_kernels.applies(conv, x)
        y = stem_kernels.stem(conv, x)
    y.float().square().sum().backward()
    gradient, conv.weight.grad = conv.weight.grad, None
    rounded = x.bfloat16().double()
    weight = conv.weight.detach().bfloat16().double().requires_grad_()
    expected = nn.functional.conv2d(rounded, weight, padding=1)
    expected.square().sum().backward()
    assert (y.double() - expected).norm() < 5e-3 * expected.norm()
    assert (gradient.double() - weight.grad).norm() < 1e-2 * weight.grad.norm()


def test_batches_computed_ahead_have_the_image_indices() -> None:
    """DIET's label is the image index. It is also the key of queues and graphs."""
    fast, plain = running.trainer("diet", batch_size=256), running.trainer("diet", batch_size=256)
    fast.run_step = StepGraph(fast.loader, fast.make_views, fast.train_step, fast.clock, SynchronousStreams())
    expected = weights_after(plain, list(range(6)))
    assert all(torch.equal(expected[name], value) for name, value in weights_after(fast, list(range(6))).items())


def test_step_graph_with_pictures_has_the_same_weights() -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 24, 30, 3), dtype=np.uint8)
    keys = {"encoder": "conv", "image_size": 12, "batch_size": 16, "picture_size": 24, "projector": "16,8"}
    config, source = pretrain.configure(images, "simclr", keys)
    quiet = Display(quiet=True)
    plain, fast = (Trainer(config, read_data(config, source, quiet, pictures=True), quiet) for _ in range(2))
    fast.run_step = StepGraph(fast.loader, fast.make_views, fast.train_step, fast.clock, SynchronousStreams())
    assert plain.loader.batch(0).images.shape == (16, 30, 3, 24)
    expected = weights_after(plain, list(range(7)))
    assert all(torch.equal(expected[name], value) for name, value in weights_after(fast, list(range(7))).items())


def test_gradients_of_several_backward_passes_are_summed() -> None:
    linear = nn.Linear(3, 2, bias=False)
    copies = Bf16Weights(linear, [linear], torch.bfloat16)
    for _ in range(2):
        copies(torch.eye(3, dtype=torch.bfloat16)).sum().backward()
        copies.collect_gradients()
    assert torch.equal(linear.weight.grad, torch.full((2, 3), 2.0))
