"""Several processes compute the same losses, gradients and weights as one process, for every method."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import running
from launch import in_processes
from twofold import dist
from twofold.display import Display
from twofold.methods import CATALOG, schema
from twofold.models.sample_head import row_store
from twofold.runs import checkpoint
from twofold.train.exchange import Exchange
from twofold.train.sample_rows import NoRows, SampleRows
from twofold.train.trainer import Trainer
from twofold.types import LossTerms
from twofold.verbs import pretrain

STEPS = 4  # two epochs of two batches: 23 images (12 + 11, or 8 + 8 + 7) and 11 images (6 + 5, or 4 + 4 + 3)
SMALL = {"projector": "12,8", "predictor_width": 12, "prototypes": 10, "queue": 50, "sub_batch": 20}
TOLERANCE = 1e-10  # in float64
ROUNDING_RATIO = 3.0  # largest allowed ratio of float32 rounding errors: several processes / one process
ROUNDING_FLOOR = 1e-6  # share of the norm that is always allowed, because one process may round little by chance


def images() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(1)
    return generator.integers(0, 256, (34, 8, 8, 1), dtype=np.uint8), np.arange(34) % 3


def trainer(method: str, encoder: nn.Module | None = None, **overrides: Any) -> Trainer:
    keys = {"batch_size": 23, "drop_last": False, "test_fraction": 0.0, "warmup_epochs": 0, "epochs": 2} | {
        key: value for key, value in SMALL.items() if key in schema(method)
    }
    config, source = pretrain.configure(images(), method, keys | overrides)
    display = Display(quiet=True)
    return Trainer(config, pretrain.read_data(config, source, display), display, encoder)


def in_precision(dtype: torch.dtype, made: Trainer) -> Trainer:
    made.method.to(dtype).train()
    if not isinstance(made.rows, NoRows):
        made.rows = SampleRows(made.config, made.method.head, made.loader.order.on_host())
    make_views = made.run_step.make_views
    made.run_step.make_views = lambda *inputs: [views.to(dtype) for views in make_views(*inputs)]
    return made


@contextmanager
def comparable() -> Iterator[None]:
    """Replace ReLU by GELU, and use small pages of classifier rows.

    At the kink of a ReLU, rounding can switch a gradient on or off. With pages of the usual size, one process would own
    all of the few rows.
    """
    smooth = mock.patch.object(nn.functional, "relu", lambda x, inplace=False: nn.functional.gelu(x))  # noqa: ARG005
    with smooth, mock.patch.object(row_store, "PAGE", 8):
        yield


def train(case: str, dtype: torch.dtype, short_steps: bool) -> dict[str, Any]:
    """Train a few steps. Return losses, the gradients of each step, the final state and the observed values."""
    method, overrides, encoder = VARIANTS.get(case, (case, {}, None))
    with comparable():
        settings = (low_learning_rate(method) if short_steps else {}) | overrides
        made = in_precision(dtype, trainer(method, None if encoder is None else encoder(), **settings))
    if isinstance(made.exchange, Exchange):
        assert (made.exchange.of_moments is not None) == case.startswith("moments")
    observe = made.observers.observe
    losses: list[Tensor] = []
    gradients: list[dict[str, Tensor]] = []

    def spy(embeddings: Any, loss: LossTerms, *others: Any) -> None:
        losses.append(loss.total.detach().double())
        observe(embeddings, loss, *others)

    made.observers.observe = spy
    with comparable():
        for step in range(STEPS):
            made.take_step(step)
            trained = made.method.trained_parameters()
            gradients.append({name: weight.grad.clone() for name, weight in trained if weight.grad is not None})
    observed: dict[str, Tensor] = {}
    checkpoint.pack(made.observers.state_dict(), observed)
    state = {name: value.clone() for name, value in made.method.state_dict().items()}
    made.method.float()
    features = made.features(made.data.train)
    return {
        "losses": torch.stack(losses),
        "gradients": gradients,
        "state": state,
        "observed": observed | {"features": features},
        "rows": torch.empty(0) if isinstance(made.rows, NoRows) else own_rows(made.rows),
    }


def own_rows(rows: SampleRows) -> Tensor:
    rows.save()
    return rows.head.dense()


# A user-defined encoder uses torch's BatchNorm, and each process initializes its own copy.
VARIANTS: dict[str, tuple[str, dict[str, Any], Callable[[], nn.Module] | None]] = {
    "own encoder": ("simclr", {}, lambda: OwnEncoder(dist.rank())),
    # With so few features, the moments are fewer numbers than the embeddings, so processes exchange the moments. In the
    # other cases of this file they exchange embeddings.
    "moments of frossl": ("frossl", {}, lambda: nn.Sequential(OwnEncoder(0), nn.Linear(64, 4))),
    "moments of barlow-twins": ("barlow-twins", {}, lambda: nn.Sequential(OwnEncoder(0), nn.Linear(64, 4))),
    "moments in micro-batches": (
        "vicreg",
        {"batch_size": 24, "pieces": 2},
        lambda: nn.Sequential(OwnEncoder(0), nn.Linear(64, 4)),
    ),
    "micro-batches": ("byol", {"batch_size": 24, "pieces": 2}, None),
    "small crops": ("swav", {"augment.local_views": 2}, None),
    "rows updated by sgd": ("s-diet", {"optimizer": "sgd", "batch_size": 24, "pieces": 2, "correction": True}, None),
    "rows updated by multistep": ("s-diet", {"head.update": "multistep"}, None),
    "clipped": ("barlow-twins", {"clip": 0.1, "batch_size": 4, "drop_last": True}, None),
}


class OwnEncoder(running.SmallEncoder):
    def __init__(self, seed: int) -> None:
        super().__init__()
        with torch.no_grad():
            self.body[0].weight.mul_(1 + seed)


def low_learning_rate(method: str) -> dict[str, Any]:
    """A low learning rate for float32, because training amplifies rounding errors and Adam turns them into full
    steps."""
    config = trainer(method).config
    return {"lr": (1e-3 if "adam" in config.optimizer else 1e-2) * config.lr}


def train_all(cases: list[str], dtype: torch.dtype = torch.float64, short_steps: bool = False) -> dict[str, Any]:
    return {case: train(case, dtype, short_steps) for case in cases}


def train_in_both_precisions(cases: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Train all cases in float64, and the methods without their variants in float32."""
    methods = [case for case in cases if case in CATALOG]
    return train_all(cases), train_all(methods, torch.float32, short_steps=True)


def vector(values: dict[str, Tensor]) -> Tensor:
    return torch.cat([value.double().flatten() for value in values.values()])


def compare(found: dict[str, Any], expected: dict[str, Any], tolerance: float = TOLERANCE) -> None:
    """Compare each step's gradient as one vector, and each tensor of the state relative to its norm (at least 0.01)."""
    torch.testing.assert_close(found["losses"], expected["losses"], rtol=tolerance, atol=tolerance)
    for mine, right in zip(found["gradients"], expected["gradients"], strict=True):
        assert mine.keys() == right.keys()
        assert (vector(mine) - vector(right)).norm() <= tolerance * vector(right).norm()
    assert found["state"].keys() == expected["state"].keys()
    for name, right in expected["state"].items():
        apart = (found["state"][name].double() - right.double()).norm()
        assert apart <= tolerance * right.double().norm().clamp_min(1e-2), name
    for name, right in expected["observed"].items():  # always in float32
        apart = (found["observed"][name].double() - right.double()).norm()
        assert apart <= 1e-5 * right.double().norm().clamp_min(1e-2), name


def compare_rounding(case: str, found: dict[str, Any], one: dict[str, Any], exact: dict[str, Any]) -> None:
    """Several processes may round differently than one process, but not worse. Both are compared with float64."""
    parts: dict[str, Callable[[dict[str, Any]], Tensor]] = {
        "losses": lambda result: result["losses"],
        "gradients": lambda result: torch.cat([vector(step) for step in result["gradients"]]),
        "state": lambda result: vector(result["state"]),
        "observed": lambda result: vector(result["observed"]),
    }
    for name, part in parts.items():
        right = part(exact)
        several, single = ((part(result) - right).norm() for result in (found, one))
        assert several <= ROUNDING_RATIO * single + ROUNDING_FLOOR * right.norm(), (
            f"{case}, {name}: {several}, one process {single}"
        )


def check(cases: list[str], count: int, folder: Path) -> None:
    expected = train_in_both_precisions(cases)
    found = in_processes(count, train_in_both_precisions, cases, folder=folder)
    exact = train_all([case for case in cases if case in CATALOG], short_steps=True)
    for precision, results in enumerate(expected):
        for case, right in results.items():
            own = [process[precision][case] for process in found]
            rows = torch.cat([result["rows"] for result in own])
            assert max(len(result["rows"]) for result in own) <= len(right["rows"]) // count + 1
            for result in own:
                for name, value in own[0]["state"].items():
                    assert torch.equal(result["state"][name], value), f"{case}: processes differ in {name}"
            if precision == 0:
                assert (rows - right["rows"]).norm() <= TOLERANCE * right["rows"].norm()
                for result in own:
                    compare(result, right)
            else:
                assert (rows - right["rows"]).norm() <= 1e-5 * right["rows"].norm()
                for result in own:
                    compare_rounding(case, result, right, exact[case])


def test_three_processes_train_like_one(tmp_path: Path) -> None:
    check(["frossl", "dino", "own encoder", "micro-batches", "moments in micro-batches", "s-diet"], 3, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("count", [2, 3])
def test_several_processes_train_every_method_like_one(count: int, tmp_path: Path) -> None:
    check([*sorted(CATALOG), *VARIANTS], count, tmp_path)
