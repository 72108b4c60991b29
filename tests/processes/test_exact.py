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
from twofold import api, dist
from twofold.methods import CATALOG, schema
from twofold.models import row_store
from twofold.train import checkpoint
from twofold.train.progress import Display
from twofold.train.sample_rows import SampleRows
from twofold.train.trainer import Trainer
from twofold.types import LossTerms

STEPS = 4  # two epochs, each of a batch of 23 images (12 + 11, or 8 + 8 + 7) and of a last one of 11 (6 + 5, 4 + 4 + 3)
SMALL = {"projector": "12,8", "predictor_width": 12, "prototypes": 10, "queue": 50, "sub_batch": 20}
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


def images() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(1)
    return generator.integers(0, 256, (34, 8, 8, 1), dtype=np.uint8), np.arange(34) % 3


def trainer(method: str, encoder: nn.Module | None = None, **overrides: Any) -> Trainer:
    keys = {"batch_size": 23, "drop_last": False, "test_fraction": 0.0, "warmup_epochs": 0, "epochs": 2} | {
        key: value for key, value in SMALL.items() if key in schema(method)
    }
    config, source = api.configure(images(), method, keys | overrides)
    display = Display(quiet=True)
    return Trainer(config, api.read_data(config, source, display), display, encoder)


def in_precision(dtype: torch.dtype, made: Trainer) -> Trainer:
    made.method.to(dtype).train()
    if made.rows is not None:
        made.rows = SampleRows(made.config, made.method.head, made.loader.order.on_host())
    make_views = made.make_views
    made.make_views = lambda *inputs: [views.to(dtype) for views in make_views(*inputs)]
    return made


@contextmanager
def comparable() -> Iterator[None]:
    """Near a ReLU's kink rounding decides on a whole gradient; a smooth function has none. And with pages of their
    usual size so few rows of a head would all be one process's."""
    smooth = mock.patch.object(nn.functional, "relu", lambda x, inplace=False: nn.functional.gelu(x))  # noqa: ARG005
    with smooth, mock.patch.object(row_store, "PAGE", 8):
        yield


def train(case: str, dtype: torch.dtype) -> dict[str, Any]:
    """A few steps: the losses, the gradients of each step, what the method holds at the end, and what was observed."""
    method, overrides, encoder = VARIANTS.get(case, (case, {}, None))
    with comparable():
        settings = gentle(method, dtype) | overrides
        made = in_precision(dtype, trainer(method, None if encoder is None else encoder(), **settings))
    if made.exchange is not None:
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
        "rows": torch.empty(0) if made.rows is None else own_rows(made.rows),
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


def gentle(method: str, dtype: torch.dtype) -> dict[str, Any]:
    """Training makes rounding grow, and Adam makes whole steps of it: in float32 steps have to be short."""
    config = trainer(method).config
    shorter = 1e-3 if "adam" in config.optimizer else 1e-2
    return {"lr": shorter * config.lr} if dtype == torch.float32 else {}


def train_all(cases: list[str]) -> dict[str, Any]:
    """Methods in both precisions; their variants, which are about bookkeeping, in float64."""
    return {
        f"{case} {dtype}": train(case, dtype)
        for case in cases
        for dtype in TOLERANCE
        if case in CATALOG or dtype == torch.float64
    }


def vector(values: dict[str, Tensor]) -> Tensor:
    return torch.cat([value.double().flatten() for value in values.values()])


def compare(found: dict[str, Any], expected: dict[str, Any], tolerance: float) -> None:
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


def check(cases: list[str], count: int, folder: Path) -> None:
    expected = train_all(cases)
    found = in_processes(count, train_all, cases, folder=folder)
    for case, right in expected.items():
        tolerance = next(value for dtype, value in TOLERANCE.items() if str(dtype) in case)
        for own in found:
            compare(own[case], right, tolerance)
            for name, value in found[0][case]["state"].items():
                assert torch.equal(own[case]["state"][name], value), f"{case}: processes differ in {name}"
        rows = torch.cat([own[case]["rows"] for own in found])
        assert max(len(own[case]["rows"]) for own in found) <= len(right["rows"]) // count + 1
        assert (rows - right["rows"]).norm() <= tolerance * right["rows"].norm()


def test_three_processes_train_as_one(tmp_path: Path) -> None:
    check(["frossl", "dino", "own encoder", "pieces", "moments in pieces", "s-diet"], 3, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("count", [2, 3])
def test_every_method_trains_as_in_one_process(count: int, tmp_path: Path) -> None:
    check([*sorted(CATALOG), *VARIANTS], count, tmp_path)
