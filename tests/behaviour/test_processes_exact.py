"""Several processes give the loss, the gradients and the weights of one: for every method of the catalog."""

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

STEPS = 4  # two epochs, each of a batch of 23 images (12 + 11, or 8 + 8 + 7) and of a last one of 11 (6 + 5, 4 + 4 + 3)
SMALL = {"projector": "12,8", "predictor_width": 12, "prototypes": 10, "queue": 50, "sub_batch": 20}
TOLERANCE = 1e-10  # in float64
WORSE = 3.0  # times the rounding of one process, that several may have in float32
UNSEEN = 1e-6  # of a norm: where one process happened to round so little


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
    """Near a ReLU's kink rounding decides on a whole gradient; a smooth function has none. And with pages of their
    usual size so few rows of a head would all be one process's."""
    smooth = mock.patch.object(nn.functional, "relu", lambda x, inplace=False: nn.functional.gelu(x))  # noqa: ARG005
    with smooth, mock.patch.object(row_store, "PAGE", 8):
        yield


def train(case: str, dtype: torch.dtype, short_steps: bool) -> dict[str, Any]:
    """A few steps: the losses, the gradients of each step, what the method holds at the end, and what was observed."""
    method, overrides, encoder = VARIANTS.get(case, (case, {}, None))
    with comparable():
        settings = (gentle(method) if short_steps else {}) | overrides
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


# A network of the user's own has torch's BatchNorm, and one that each process draws for itself.
VARIANTS: dict[str, tuple[str, dict[str, Any], Callable[[], nn.Module] | None]] = {
    "own encoder": ("simclr", {}, lambda: OwnEncoder(dist.rank())),
    # With so few features the moments are fewer numbers than the embeddings; elsewhere in this file they are not.
    "moments of frossl": ("frossl", {}, lambda: nn.Sequential(OwnEncoder(0), nn.Linear(64, 4))),
    "moments of barlow-twins": ("barlow-twins", {}, lambda: nn.Sequential(OwnEncoder(0), nn.Linear(64, 4))),
    "moments in pieces": (
        "vicreg",
        {"batch_size": 24, "pieces": 2},
        lambda: nn.Sequential(OwnEncoder(0), nn.Linear(64, 4)),
    ),
    "pieces": ("byol", {"batch_size": 24, "pieces": 2}, None),
    "small crops": ("swav", {"augment.local_views": 2}, None),
    "rows by sgd": ("s-diet", {"optimizer": "sgd", "batch_size": 24, "pieces": 2, "correction": True}, None),
    "rows by epochs": ("s-diet", {"head.update": "multistep"}, None),
    "clipped": ("barlow-twins", {"clip": 0.1, "batch_size": 4, "drop_last": True}, None),
}


class OwnEncoder(running.SmallEncoder):
    def __init__(self, seed: int) -> None:
        super().__init__()
        with torch.no_grad():
            self.body[0].weight.mul_(1 + seed)


def gentle(method: str) -> dict[str, Any]:
    """Training makes rounding grow, and Adam makes whole steps of it: in float32 steps have to be short."""
    config = trainer(method).config
    return {"lr": (1e-3 if "adam" in config.optimizer else 1e-2) * config.lr}


def train_all(cases: list[str], dtype: torch.dtype = torch.float64, short_steps: bool = False) -> dict[str, Any]:
    return {case: train(case, dtype, short_steps) for case in cases}


def train_in_both(cases: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """In float64; and methods in float32, but not their variants, which are about bookkeeping."""
    methods = [case for case in cases if case in CATALOG]
    return train_all(cases), train_all(methods, torch.float32, short_steps=True)


def vector(values: dict[str, Tensor]) -> Tensor:
    return torch.cat([value.double().flatten() for value in values.values()])


def compare(found: dict[str, Any], expected: dict[str, Any], tolerance: float = TOLERANCE) -> None:
    """The gradient of each step as one vector; each tensor of the state by itself, as of norm 0.01 if it is shorter."""
    torch.testing.assert_close(found["losses"], expected["losses"], rtol=tolerance, atol=tolerance)
    for mine, right in zip(found["gradients"], expected["gradients"], strict=True):
        assert mine.keys() == right.keys()
        assert (vector(mine) - vector(right)).norm() <= tolerance * vector(right).norm()
    assert found["state"].keys() == expected["state"].keys()
    for name, right in expected["state"].items():
        apart = (found["state"][name].double() - right.double()).norm()
        assert apart <= tolerance * right.double().norm().clamp_min(1e-2), name
    for name, right in expected["observed"].items():  # in float32 always
        apart = (found["observed"][name].double() - right.double()).norm()
        assert apart <= 1e-5 * right.double().norm().clamp_min(1e-2), name


def compare_rounding(case: str, found: dict[str, Any], one: dict[str, Any], exact: dict[str, Any]) -> None:
    """Several processes round otherwise than one does, and not worse: both are measured from float64."""
    parts: dict[str, Callable[[dict[str, Any]], Tensor]] = {
        "losses": lambda result: result["losses"],
        "gradients": lambda result: torch.cat([vector(step) for step in result["gradients"]]),
        "state": lambda result: vector(result["state"]),
        "observed": lambda result: vector(result["observed"]),
    }
    for name, part in parts.items():
        right = part(exact)
        several, single = ((part(result) - right).norm() for result in (found, one))
        assert several <= WORSE * single + UNSEEN * right.norm(), f"{case}, {name}: {several}, one process {single}"


def check(cases: list[str], count: int, folder: Path) -> None:
    expected = train_in_both(cases)
    found = in_processes(count, train_in_both, cases, folder=folder)
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


def test_three_processes_train_as_one(tmp_path: Path) -> None:
    check(["frossl", "dino", "own encoder", "pieces", "moments in pieces", "s-diet"], 3, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("count", [2, 3])
def test_every_method_trains_as_in_one_process(count: int, tmp_path: Path) -> None:
    check([*sorted(CATALOG), *VARIANTS], count, tmp_path)
