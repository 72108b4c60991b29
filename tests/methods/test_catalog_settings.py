"""Keys of methods and their effect on the method."""

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import running
from twofold import objectives
from twofold.display import Display
from twofold.errors import TwofoldError
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


def test_graph_vicreg_scales_the_graph_to_the_degree_of_two_views() -> None:
    """The same classes in larger groups have a larger graph, but terms of the same size."""
    setting = {"batch_size": 64, "graph.source": "labels"}
    trainer = running.trainer("graph-vicreg", **setting)
    z, index = torch.randn(2, 64, 16), trainer.data.train.index[:64]
    loss = trainer.method.objective(Embeddings(z, z, index))
    labels = trainer.data.train.labels[:64].repeat(2)
    same = (labels[:, None] == labels).float()
    degree = same.sum(1).mean()
    assert degree > 10
    rows = z.flatten(0, 1)
    x = rows - rows.mean(0)
    torch.testing.assert_close(loss.terms["alignment"], -2 / degree * ((same @ x) * x).sum() / (128 * 16))
    orthogonality = (x.T @ x / 128 - torch.eye(16)).square().sum() / 16
    torch.testing.assert_close(loss.terms["orthogonality"], 0.1 * orthogonality)


@pytest.mark.parametrize(("method", "loss"), [("diet", "cross_entropy"), ("mse-diet", "squared_error")])
def test_diet_normalizes_the_output_of_its_projector(method: str, loss: str) -> None:
    trainer = running.trainer(method, normalize=True, projector=(32, 16))
    head, images = trainer.method.head.weight, trainer.data.train
    assert head.shape == (len(images), 16)
    z, rows = torch.randn(1, 5, 16), torch.tensor([3, 0, 7, 9, 4])
    found = trainer.method.objective(Embeddings(z, z, images.index[rows])).terms[loss]
    outputs = nn.functional.normalize(z[0], dim=1) @ head.T
    if loss == "cross_entropy":
        expected = nn.functional.cross_entropy(outputs, rows, label_smoothing=0.8)
    else:
        expected = (outputs - nn.functional.one_hot(rows, len(images))).square().sum(1).mean() / 2
    torch.testing.assert_close(found, expected)


def test_predictor_of_width_0_is_a_matrix() -> None:
    for method in ("byol", "simsiam"):
        predictor = running.trainer(method, predictor_width=0, projector=(32, 16)).method.predictor
        assert isinstance(predictor, nn.Linear)
        assert (predictor.weight.shape, predictor.bias) == ((16, 16), None)


def test_frossl_without_centring_has_no_form_in_moments() -> None:
    assert running.trainer("frossl").method.of_moments is not None
    assert running.trainer("frossl", centre=False).method.of_moments is None


def test_rule_of_alpha_cl_may_be_a_function_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "rules.py"
    file.write_text("def nearest(within, between):\n    return (between == between.amin(1, keepdim=True)).float()\n")
    trainer = running.trainer("alpha-cl", rule=f"{file}:nearest")
    z = torch.randn(2, 6, 4)
    loss = trainer.method.objective(Embeddings(z, z, torch.arange(6)))
    rows = nn.functional.normalize(z, dim=-1).flatten(0, 1)
    scores = rows @ rows.T
    scores[torch.eye(6).repeat(2, 2) > 0] = -2
    torch.testing.assert_close(loss.terms["repulsion"], scores.amax(1).mean())
    for rule, message in (
        (f"{file}:furthest", "no function 'furthest'"),
        (f"{tmp_path}/missing.py:rule", "cannot be imported"),
        ("no_such_module:rule", "cannot be imported"),
        ("entropi", "did you mean 'entropy'"),
    ):
        with pytest.raises(TwofoldError, match=message):
            running.trainer("alpha-cl", rule=rule)
    with pytest.raises(TwofoldError, match="takes no parameters here, not temperature"):
        running.trainer("alpha-cl", rule=f"{file}:nearest", temperature=0.1)


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
