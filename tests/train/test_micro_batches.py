"""Micro-batches give the loss and the gradients of the whole batch."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import running
import twofold
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.train.micro_batches import MicroBatches
from twofold.train.trainer import Trainer
from twofold.types import Batch, Embeddings
from twofold.verbs import pretrain


class IndependentSamples(nn.Module):
    """An encoder in which samples do not interact. With dropout, both passes must use the same draws."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.Tanh(), nn.Dropout(dropout), nn.Linear(48, 24))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


def trainer(method: str, encoder: nn.Module | None = None, **overrides: Any) -> Trainer:
    config, source = pretrain.configure("digits", method, running.small(method, **overrides))
    display = Display(quiet=True)
    made = Trainer(config, pretrain.read_data(config, source, display), display, encoder)
    made.method.train()
    return made


def without_norms(made: Trainer) -> Trainer:
    """Convert to float64 and replace BatchNorm, so that samples do not interact."""

    def replaced(module: nn.Module) -> None:
        for name, child in module.named_children():
            if isinstance(child, nn.modules.batchnorm._BatchNorm):
                setattr(module, name, nn.Tanh())
            else:
                replaced(child)

    replaced(made.method)
    made.method.double()
    return made


def one_step(made: Trainer) -> tuple[dict[str, Tensor], dict[str, float]]:
    torch.manual_seed(5)
    batch = made.loader.batch(0)
    views = [view.to(next(made.method.encoder.parameters()).dtype) for view in views_of(made, batch)]
    made.train_step(batch, views)
    slopes = {name: weight.grad for name, weight in made.method.trained_parameters() if weight.grad is not None}
    return slopes, made.observers.means.read()


def views_of(made: Trainer, batch: Any) -> list[Tensor]:
    return made.make_views(batch.images, batch.position, made.clock)


@pytest.mark.parametrize("method", twofold.methods())
def test_gradients_equal_those_of_the_whole_batch(method: str) -> None:
    """For every method, up to rounding, if samples do not interact."""
    made = [without_norms(trainer(method, IndependentSamples(), pieces=pieces)) for pieces in (1, 4)]
    (whole, terms), (parts, same_terms) = (one_step(each) for each in made)
    assert whole.keys() == parts.keys()
    for name, slope in whole.items():
        assert (parts[name] - slope).norm() <= 1e-10 * slope.norm() + 1e-14
    assert same_terms == pytest.approx(terms, rel=1e-5)
    for before, after in zip(made[0].method.parameters(), made[1].method.parameters(), strict=True):
        torch.testing.assert_close(after, before, rtol=1e-6, atol=1e-8)


def test_dropout_is_the_same_in_both_passes() -> None:
    """Compared with one graph over all micro-batches, with the same draws."""
    made = without_norms(trainer("simclr", IndependentSamples(dropout=0.5), pieces=4))
    slopes, _ = one_step(made)
    reference = without_norms(trainer("simclr", IndependentSamples(dropout=0.5)))
    torch.manual_seed(5)
    batch = reference.loader.batch(0)
    outputs = []
    for number, views in enumerate(views_of(reference, batch)[0].double().tensor_split(4, dim=1)):
        torch.manual_seed(5 + number)
        outputs.append(torch.stack([reference.method.projector(reference.method.encoder(view)) for view in views]))
    embeddings = reference.method(views_of(reference, batch)[0].double(), batch)
    object.__setattr__(embeddings, "z", torch.cat(outputs, dim=1))
    reference.method.objective(embeddings).total.backward()
    for name, weight in reference.method.trained_parameters():
        torch.testing.assert_close(slopes[name], weight.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", ["frossl", "byol"])
def test_batch_norm_uses_one_micro_batch_and_updates_once(method: str) -> None:
    """The reference processes the micro-batches one after another, in one graph."""
    made, reference = trainer(method, pieces=2), trainer(method)
    slopes, _ = one_step(made)
    batch = reference.loader.batch(0)
    views = views_of(reference, batch)[0]
    parts = [reference.method(piece.contiguous(), batch) for piece in views.tensor_split(2, dim=1)]
    whole = parts[0]
    for name in ("features", "z", "prediction", "target"):
        if getattr(whole, name) is not None:
            object.__setattr__(whole, name, torch.cat([getattr(part, name) for part in parts], dim=1))
    reference.method.objective(whole).total.backward()
    for name, weight in reference.method.trained_parameters():
        if weight.grad is not None:
            torch.testing.assert_close(slopes[name], weight.grad, rtol=2e-3, atol=1e-5)
    for name, buffer in reference.method.named_buffers():
        if "running" in name or "tracked" in name:
            torch.testing.assert_close(made.method.get_buffer(name), buffer, rtol=1e-4, atol=1e-5)


def test_uneven_micro_batches_raise_an_error() -> None:
    with pytest.raises(TwofoldError, match="pieces=3 does not divide batch_size=128"):
        trainer("frossl", pieces=3)
    with pytest.raises(TwofoldError, match="two images or more"):
        trainer("frossl", pieces=128)


def test_gradients_of_features_pass_through_micro_batches() -> None:
    torch.manual_seed(0)
    encoder, projector = nn.Linear(4, 3), nn.Linear(3, 2)

    def forward(views: Tensor, batch: Batch, **_: object) -> Embeddings:
        features = encoder(views.flatten(2))
        return Embeddings(features, projector(features), batch.index)

    views = torch.randn(2, 6, 1, 2, 2)
    batch = Batch(torch.zeros(6, 1), torch.arange(6), torch.arange(6), None)

    def loss(e: Embeddings) -> Tensor:
        return e.features.square().mean() + e.z.square().mean()

    loss(forward(views, batch)).backward()
    expected = encoder.weight.grad.clone()
    encoder.zero_grad()
    projector.zero_grad()
    parts = MicroBatches(3, forward, [encoder, projector], torch.channels_last)
    parts.backward(loss(parts.embed([views], batch)))
    torch.testing.assert_close(encoder.weight.grad, expected)
