"""Neighbours and teachers by the features of another encoder: computed once, and trained with."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import twofold
from running import small
from twofold.data.objects import Objects
from twofold.data.open import open_source
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.evaluate.encoder import Encoder, open_encoder
from twofold.evaluate.graph_features import nearest_others, with_graph_features
from twofold.methods.relations import graph_fingerprint, sample_graph
from twofold.models import build_encoder
from twofold.runs.weights import save_encoder
from twofold.verbs import pretrain


def test_nearest_others_are_those_of_all_cosines() -> None:
    features = torch.randn(2500, 6, generator=torch.Generator().manual_seed(0))
    features[7] = features[9] = features[2300]  # copies
    rows = torch.nn.functional.normalize(features, dim=1)
    cosine = (rows @ rows.T).fill_diagonal_(-2)
    found = nearest_others(features, 3)
    torch.testing.assert_close(cosine.gather(1, found), cosine.topk(3).values)
    assert (found != torch.arange(2500)[:, None]).all()


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a small encoder of digits with random weights."""
    path = tmp_path_factory.mktemp("teacher") / "teacher.safetensors"
    description = {"encoder": "conv", "stem": "small", "channels": 1, "image_size": 8, "mean": [0.3], "std": [0.4]}
    torch.manual_seed(0)
    save_encoder(path, build_encoder("conv", channels=1, stem="small", image_size=8), description)
    return path


def test_teacher_is_computed_once_and_a_run_resumes_with_it(
    teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "cache"))
    graph = {"graph.source": "teacher", "graph.encoder": str(teacher)}
    config, source = pretrain.configure("digits", "ridge-graph", small("ridge-graph", epochs=1) | graph)
    data = pretrain.read_data(config, source, Display(quiet=True))
    found = with_graph_features(config, source, data, Display(quiet=True)).train.features
    with np.load(twofold.embed(teacher, "digits", tmp_path / "x.npz")) as file:
        np.testing.assert_allclose(found.numpy(), file["features"][data.train.index.numpy()], rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(Encoder, "blocks", lambda *_: pytest.fail("the features were computed again"))
    again = with_graph_features(config, source, data, Display(quiet=True)).train.features
    assert torch.equal(found, again)


@pytest.mark.parametrize(
    "method, source",
    [
        ("ridge-graph", "teacher"),
        pytest.param("graph-vicreg", "teacher", marks=pytest.mark.full),
        pytest.param("graph-vicreg", "neighbours", marks=pytest.mark.full),
    ],
)
def test_methods_train_with_the_features_of_an_encoder(
    method: str, source: str, teacher: Path, images: Path, tmp_path: Path
) -> None:
    graph = {"graph.source": source, "graph.encoder": str(teacher)}
    settings = small(method, epochs=1, batch_size=40) | graph | {"data": str(images)}
    run = twofold.pretrain(settings, method=method, out=tmp_path / "run")
    assert run.config.parameters["graph"].encoder == str(teacher)
    assert np.isfinite(run.metrics[-1]["loss"])
    data = pretrain.read_data(run.config, open_source(images), Display(quiet=True))
    found = with_graph_features(run.config, open_source(images), data, Display(quiet=True)).train
    changed = replace(found, graph_encoder="another")
    one, other = (graph_fingerprint(run.config.parameters["graph"], store) for store in (found, changed))
    assert one != other  # a run does not resume with another teacher


def test_neighbours_of_objects_are_those_of_their_first_images(teacher: Path, images: Path) -> None:
    graph = {"graph.source": "neighbours", "graph.encoder": str(teacher), "graph.neighbours": 3}
    keys = small("graph-vicreg", epochs=1, batch_size=40) | graph
    config, source = pretrain.configure(str(images), "graph-vicreg", keys)
    data = pretrain.read_data(config, source, Display(quiet=True))
    first = torch.arange(0, len(data.train), 2)
    objects = Objects.of(np.arange(len(data.train)) // 2)
    of_pairs = replace(data, train=replace(data.train, objects=objects))
    found = with_graph_features(config, source, of_pairs, Display(quiet=True)).train.samples()
    alone = replace(data.train, images=data.train.images[first], index=data.train.index[first])
    teacher_of = open_encoder(teacher, lambda: source)
    expected = nearest_others(teacher_of.features(alone), 3)
    assert found.neighbours is not None
    assert torch.equal(found.neighbours, expected)
    related = sample_graph(config.parameters["graph"], found)
    assert related is not None
    assert related(found.index[:5]).shape == (5, 5)


def test_useless_and_impossible_settings_are_refused(teacher: Path) -> None:
    source = open_source("digits")
    for graph, message in (
        ({"graph.source": "labels", "graph.encoder": str(teacher)}, "has no effect with graph.source=labels"),
        (
            {"graph.source": "neighbours", "graph.encoder": str(teacher), "graph.neighbours": 5000},
            "is not possible for",
        ),
        ({"graph.source": "teacher", "graph.encoder": "nowhere"}, "nowhere is not an encoder"),
    ):
        config, _ = pretrain.configure("digits", "ridge-graph", small("ridge-graph") | graph)
        data = pretrain.read_data(config, source, Display(quiet=True))
        with pytest.raises(TwofoldError, match=message):
            with_graph_features(config, source, data, Display(quiet=True))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 digits without labels."""
    path = tmp_path_factory.mktemp("few") / "few.npz"
    np.savez(path, x=(load_digits().images[:200] * 15).astype(np.uint8))
    return path


def test_adapters_accept_all_graphs(teacher: Path, images: Path, tmp_path: Path) -> None:
    groups = [number // 2 for number in range(200)]
    (tmp_path / "groups.csv").write_text("".join(f"{number},{group}\n" for number, group in enumerate(groups)))
    pairs = "".join(f"{number},{number + 1}\n" for number in range(0, 200, 2))
    (tmp_path / "pairs.csv").write_text("first,second\n" + pairs)
    for graph, encoder in (("groups.csv", None), ("pairs.csv", None), ("neighbours", str(teacher))):
        source = str(tmp_path / graph) if graph.endswith(".csv") else graph
        out = tmp_path / graph.partition(".")[0]
        adapted = twofold.adapt(teacher, images, out=out, graph=source, graph_encoder=encoder, variant="within")
        assert adapted.adaptation.images == 200
        assert adapted.adaptation.adapter is not None
    with pytest.raises(TwofoldError, match="graph=teacher is for training"):
        twofold.adapt(teacher, images, out=tmp_path / "no", graph="teacher")
    with pytest.raises(TwofoldError, match="graph_encoder has no effect with graph=labels"):
        twofold.adapt(teacher, images, out=tmp_path / "no", graph="labels", graph_encoder=str(teacher))
