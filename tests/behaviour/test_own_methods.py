"""Methods of one's own: what they ask for holds, and what they keep is left alone before the run."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import running
import twofold
from twofold.errors import TwofoldError
from twofold.keys import Widths
from twofold.methods import CATALOG, Method, Parts, entry, registry, relations
from twofold.models import mlp
from twofold.types import Embeddings, LossTerms
from twofold.verbs import pretrain

FEW = np.random.default_rng(0).integers(0, 256, (32, 8, 8), dtype=np.uint8)
SHORT = {"epochs": 1, "batch_size": 16, "encoder": "conv", "map_points": 0}


class Memory(nn.Module):
    mean: Tensor

    def __init__(self, dim: int):
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))


@pytest.fixture
def moving() -> Iterator[str]:
    """A method whose objective moves its own state, as one should not."""

    @entry(name="moving", recipe={"optimizer": "sgd", "lr": 0.05})
    def moving(parts: Parts, *, projector: Widths = (16, 8)) -> Method:
        memory = Memory(projector[-1])

        def objective(e: Embeddings) -> LossTerms:
            total = (e.z[0] - e.z[1] - memory.mean).square().mean()
            with torch.no_grad():
                memory.mean.add_(1)
            return LossTerms(total, {"total": total.detach()})

        return Method(parts, mlp(parts.features, projector), objective, memory=memory)

    yield "moving"
    del CATALOG["moving"]


def test_data_that_know_what_suits_the_catalog_leave_the_recipe_and_defaults_of_others(moving: str) -> None:
    config, _ = pretrain.configure("digits", moving, {})
    assert (config.optimizer, config.lr, config.parameters["projector"]) == ("sgd", 0.05, (16, 8))
    assert config.encoder == "conv"  # neither speaks of it
    catalog, _ = pretrain.configure("digits", "simclr", {})
    assert (catalog.optimizer, catalog.origin["optimizer"]) == ("adamw", "data")


def test_the_rehearsal_of_an_objective_leaves_no_trace(moving: str) -> None:
    trainer = running.trainer(moving, drop_last=False)
    assert torch.equal(trainer.method.memory.mean, torch.zeros(16))
    trainer.method.train()
    trainer.take_step(0)
    assert torch.equal(trainer.method.memory.mean, torch.ones(16))


def test_what_is_known_of_the_images_of_a_step_is_found_by_their_numbers(moving: str) -> None:
    images = running.trainer(moving).data.train
    index = images.index[[5, 3, 700]]
    assert torch.equal(relations.looked_up(images.labels, images)(index), images.labels[[5, 3, 700]])
    assert not torch.equal(index, torch.tensor([5, 3, 700]))  # some are held out, so that numbers are no rows


def test_labels_that_the_data_do_not_have_are_not_looked_up(moving: str) -> None:
    images = running.trainer(moving).data.train
    with pytest.raises(TwofoldError, match="nothing to look up: these images have no labels or groups"):
        relations.looked_up(images.groups, images)


def test_what_the_rehearsal_draws_is_not_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    def build(parts: Parts) -> Method:
        def objective(e: Embeddings) -> LossTerms:
            drawn.append(torch.rand(()))
            return LossTerms(e.z.square().mean() * drawn[-1], {})

        return Method(parts, mlp(parts.features, (8,)), objective)

    monkeypatch.setitem(CATALOG, "mine", registry.Entry("mine", build, "own", "", "", {}))
    torch.manual_seed(5)
    before = torch.get_rng_state()
    running.trainer("mine")
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    running.trainer("mine")
    assert len(set(map(float, drawn))) == 1


def test_an_objective_that_fails_on_one_view_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(parts: Parts) -> Method:
        return Method(parts, mlp(parts.features, (8,)), lambda e: LossTerms((e.z[0] - e.z[1]).square().mean(), {}))

    monkeypatch.setitem(CATALOG, "mine", registry.Entry("mine", build, "own", "", "", {}))
    with pytest.raises(TwofoldError, match=r"mine's objective fails with views=1 \(IndexError: .*use views=2") as error:
        running.trainer("mine", views=1)
    assert isinstance(error.value.__cause__, IndexError)


def test_runs_of_a_method_that_was_defined_anew_can_be_used_and_not_gone_on_with(tmp_path: Path) -> None:
    def loss(e: Embeddings) -> LossTerms:
        total = (e.z[0] - e.z[1]).square().mean()
        return LossTerms(total, {"total": total.detach()})

    def weighed(parts: Parts, *, weight: float = 1.0) -> Method:  # noqa: ARG001 — a key is enough
        return Method(parts, mlp(parts.features, (16,)), loss)

    def strong(parts: Parts, *, strength: float = 1.0) -> Method:  # noqa: ARG001
        return Method(parts, mlp(parts.features, (16,)), loss)

    define = entry(name="mine")
    try:
        define(weighed)
        run = twofold.pretrain(FEW, method="mine", out=tmp_path / "run", **SHORT)
        define(strong)
        assert run.config.method == "mine"
        twofold.embed(run, FEW, tmp_path / "features.npz")
        (run.path / "results.json").unlink()
        with pytest.raises(TwofoldError, match="when this method had other parameters: define it as it was"):
            twofold.resume(run, data=FEW)
        define(weighed)
        twofold.resume(run, data=FEW)
    finally:
        del CATALOG["mine"]


def test_a_method_may_load_the_encoder_of_an_earlier_run(tmp_path: Path) -> None:
    """While it is built, and while its objective is rehearsed: both hold torch's generator."""
    earlier = twofold.pretrain(FEW, out=tmp_path / "earlier", **SHORT)

    @entry(name="distilled")
    def distilled(parts: Parts, *, projector: Widths = (16, 8)) -> Method:
        wanted = twofold.load_encoder(earlier)(torch.zeros(1, 1, 8, 8)).shape[1]

        def objective(e: Embeddings) -> LossTerms:
            twofold.load_encoder(earlier)
            total = (e.z - wanted).square().mean()
            return LossTerms(total, {"total": total.detach()})

        return Method(parts, mlp(parts.features, projector), objective)

    try:
        running.trainer("distilled")
    finally:
        del CATALOG["distilled"]


def test_state_that_a_checkpoint_would_not_have_is_refused() -> None:
    """A queue that only a closure knows is lost with the process, and a resumed run would differ in silence."""
    parts = Parts(encoder=nn.Flatten(), features=4, images=None, epochs=1)
    with pytest.raises(TwofoldError, match="pass the module whose state it updates"):
        Method(parts, nn.Identity(), lambda e: LossTerms(e.z.sum(), {}), remember=lambda *_: None)
