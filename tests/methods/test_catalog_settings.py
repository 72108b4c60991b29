"""Keys of methods and their effect on the method."""

import dataclasses

import pytest
import torch
from torch import Tensor, nn

import running
from twofold import objectives
from twofold.display import Display
from twofold.train.trainer import Trainer
from twofold.types import Embeddings
from twofold.verbs import pretrain


def test_euclidean_distance_uses_the_corrected_and_unnormalized_correlation() -> None:
    for distance, corrected in (("euclidean", True), ("cosine", False)):
        direct = running.trainer("isoloss", distance=distance).method.direct
        assert (direct.corrected, direct.normalize) == (corrected, not corrected)


def test_correction_estimates_the_loss_over_all_images() -> None:
    """With equal logits, the cross entropy over n classes is log n."""
    for correction in (False, True):
        trainer = running.trainer("s-diet", correction=correction, batch_size=64)
        z = torch.zeros(1, 64, trainer.method.head.dim)
        n = len(trainer.data.train) if correction else 64
        loss = trainer.method.objective(Embeddings(z, z, torch.arange(64)))
        assert loss.total.exp().item() == pytest.approx(n, rel=1e-4)


def test_class_without_training_images_keeps_its_classifier_row() -> None:
    config, source = pretrain.configure("digits", "supervised", running.small("supervised"))
    data = pretrain.read_data(config, source, Display(quiet=True))
    some = data.train.labels != 3
    train = dataclasses.replace(
        data.train, images=data.train.images[some], labels=data.train.labels[some], index=data.train.index[some]
    )
    trainer = Trainer(config, dataclasses.replace(data, train=train), Display(quiet=True))
    trainer.method.train()
    trainer.take_step(0)
    assert trainer.method.head.weight.shape[0] == 10


def test_graph_vicreg_averages_over_dimensions() -> None:
    trainer = running.trainer("graph-vicreg", batch_size=64)
    torch.manual_seed(0)
    z, dim = torch.randn(2, 64, 16), 16
    rows = z.flatten(0, 1)
    loss = trainer.method.objective(Embeddings(z, z, trainer.data.train.index[:64]))
    x = rows - rows.mean(0)
    alignment = -((torch.eye(64).repeat(2, 2) @ x) * x).sum() / (128 * dim)
    orthogonality = (x.T @ x / 128 - torch.eye(dim)).square().sum() / dim
    torch.testing.assert_close(loss.terms["alignment"], alignment)
    torch.testing.assert_close(loss.terms["orthogonality"], 0.1 * orthogonality)
    torch.testing.assert_close(loss.total, alignment + 0.1 * orthogonality)


def test_isoloss_with_exponent_1_has_the_epsilon_of_directcopy() -> None:
    assert running.trainer("isoloss", exponent=1.0).method.direct.epsilon == 0.25
    assert running.trainer("isoloss").method.direct.epsilon == 0
    assert running.trainer("isoloss", exponent=1.0, epsilon=0.1).method.direct.epsilon == 0.1


def test_isoloss_without_teacher_has_a_lower_correlation_momentum() -> None:
    for given, momentum, scale in (
        ({}, 0.998, 1),
        ({"teacher_momentum": None}, 0.5, 2),
        ({"teacher_momentum": None, "correlation_momentum": 0.9}, 0.9, 2),
    ):
        config, _ = pretrain.configure("digits", "isoloss", given)
        assert (config.parameters["correlation_momentum"], config.parameters["scale"]) == (momentum, scale)


@pytest.mark.parametrize("weight", [1.0, 0.1])
@pytest.mark.parametrize("part", [1, 4])
def test_graph_vicreg_aligns_views_fully_only_with_few_dimensions(weight: float, part: int) -> None:
    """At the minimum, cosines are 1/(1 + 2·weight) with as many dimensions as rows, and 1 with few dimensions."""
    N = 32
    rows = 2 * N
    z = torch.randn(rows, rows // part, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    z.requires_grad_()
    graph = torch.eye(N, dtype=torch.float64).repeat(2, 2)
    search = torch.optim.LBFGS([z], max_iter=500, history_size=30, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        search.zero_grad()
        total = objectives.graph_vicreg(z / rows**0.5, graph, weight / rows).total
        total.backward()
        return total

    search.step(loss)
    first, second = (z - z.mean(0)).detach().chunk(2)
    cosine = nn.functional.cosine_similarity(first, second, dim=1).mean().item()
    assert cosine == pytest.approx(1 / (1 + 2 * weight) if part == 1 else 1.0, abs=0.02)
