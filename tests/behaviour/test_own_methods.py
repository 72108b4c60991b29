"""User-defined methods: their recipes and defaults apply, and the check of the objective changes no state."""

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
def stateful_method() -> Iterator[str]:
    """A method whose objective updates its own state, which objectives should not do."""

    @entry(name="moving", recipe={"optimizer": "sgd", "lr": 0.05})
    def stateful_method(parts: Parts, *, projector: Widths = (16, 8)) -> Method:
        memory = Memory(projector[-1])

        def objective(e: Embeddings) -> LossTerms:
            total = (e.z[0] - e.z[1] - memory.mean).square().mean()
            with torch.no_grad():
                memory.mean.add_(1)
            return LossTerms(total, {"total": total.detach()})

        return Method(parts, mlp(parts.features, projector), objective, memory=memory)

    yield "moving"
    del CATALOG["moving"]


def test_defaults_of_the_data_do_not_override_recipes_of_own_methods(stateful_method: str) -> None:
    config, _ = pretrain.configure("digits", stateful_method, {})
    assert (config.optimizer, config.lr, config.parameters["projector"]) == ("sgd", 0.05, (16, 8))
    assert config.encoder == "conv"  # set by the data, because the method does not set it
    catalog, _ = pretrain.configure("digits", "simclr", {})
    assert (catalog.optimizer, catalog.origin["optimizer"]) == ("adamw", "data")


def test_check_of_the_objective_does_not_change_its_state(stateful_method: str) -> None:
    trainer = running.trainer(stateful_method, drop_last=False)
    assert torch.equal(trainer.method.memory.mean, torch.zeros(16))
    trainer.method.train()
    trainer.take_step(0)
    assert torch.equal(trainer.method.memory.mean, torch.ones(16))


def test_labels_are_looked_up_by_image_index(stateful_method: str) -> None:
    images = running.trainer(stateful_method).data.train
    index = images.index[[5, 3, 700]]
    assert torch.equal(relations.looked_up(images.labels, images)(index), images.labels[[5, 3, 700]])
    assert not torch.equal(index, torch.tensor([5, 3, 700]))  # because of held-out images, an index is not a row number


def test_looking_up_missing_labels_raises_an_error(stateful_method: str) -> None:
    images = running.trainer(stateful_method).data.train
    with pytest.raises(TwofoldError, match="nothing to look up: these images have no labels or groups"):
        relations.looked_up(images.groups, images)


def test_check_of_the_objective_leaves_the_random_state_of_the_caller_alone(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_objective_that_fails_with_one_view_suggests_two_views(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(parts: Parts) -> Method:
        return Method(parts, mlp(parts.features, (8,)), lambda e: LossTerms((e.z[0] - e.z[1]).square().mean(), {}))

    monkeypatch.setitem(CATALOG, "mine", registry.Entry("mine", build, "own", "", "", {}))
    with pytest.raises(TwofoldError, match=r"mine's objective fails with views=1 \(IndexError: .*use views=2") as error:
        running.trainer("mine", views=1)
    assert isinstance(error.value.__cause__, IndexError)


def test_run_of_a_redefined_method_can_be_embedded_but_not_resumed(tmp_path: Path) -> None:
    def loss(e: Embeddings) -> LossTerms:
        total = (e.z[0] - e.z[1]).square().mean()
        return LossTerms(total, {"total": total.detach()})

    def weighed(parts: Parts, *, weight: float = 1.0) -> Method:  # noqa: ARG001 — only the key matters
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


def test_method_can_load_the_encoder_of_an_earlier_run(tmp_path: Path) -> None:
    """Building a method and checking its objective lock torch's generator. Loading an encoder locks it, too."""
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


def test_state_outside_of_a_module_raises_an_error() -> None:
    """A queue in a closure is not part of the checkpoint, so a resumed run would differ without notice."""
    parts = Parts(encoder=nn.Flatten(), features=4, images=None, epochs=1)
    with pytest.raises(TwofoldError, match="pass the module whose state it updates"):
        Method(parts, nn.Identity(), lambda e: LossTerms(e.z.sum(), {}), update_state=lambda *_: None)
