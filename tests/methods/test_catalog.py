"""Methods of the catalog learn digits without collapse; registration and checks of own methods."""

import inspect
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import running
import twofold
from twofold.config import dump, load, resolve
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.keys import Positive, Widths
from twofold.methods import CATALOG, Method, Parts, registry
from twofold.models import mlp
from twofold.train.trainer import Trainer
from twofold.types import Batch, Embeddings, LossTerms
from twofold.verbs import pretrain

WARNING = "warning  "  # how a line of the log starts; the spaces tell it from the names of folders
# `quadratic` weighs all pairs equally. On digits this leaves few dimensions, as Theorem 3 of α-CL predicts.
LEAST_RANK = {"quadratic": 3.0}
# Methods that need more than 20 epochs (100 steps, the least for a verdict) to be clearly better than the untrained
# encoder. DIET sees one view per step, Barlow Twins first decorrelates dimensions, and SwAV first finds clusters.
EPOCHS = {
    "diet": 30,
    "mse-diet": 60,
    "barlow-twins": 25,
    "swav": 30,
    "frossl": 30,
    "moco": 30,
    "graph-vicreg": 30,
    "corinfomax": 52,
    "spectral-contrastive": 52,
    "byol": 50,
}
# With the learning rate of the other methods, 0.01, the squared error of unnormalised features oscillates.
SMALLER_LR: dict[str, dict[str, object]] = {"mse-diet": {"lr": 0.003}}
# DINO's default teacher momentum is made for 200,000 steps: after hundreds of steps the teacher is still untrained.
# With a lower momentum and 100 epochs DINO learns.
FASTER_TEACHER: dict[str, dict[str, object]] = {"dino": {"teacher_momentum": 0.996, "epochs": 100}}


# Some methods of every family. The long tests train all methods.
SAMPLE = ("frossl", "vicreg", "simclr", "moco", "byol", "isoloss", "swav", "s-diet", "graph-vicreg")
SAMPLED = [pytest.param(method, marks=[] if method in SAMPLE else pytest.mark.full) for method in sorted(CATALOG)]


@pytest.mark.parametrize("method", SAMPLED)
def test_method_learns_digits_without_collapse(method: str, measured_once: Any, tmp_path: Path) -> None:
    keys = {"epochs": EPOCHS.get(method, 20)} | FASTER_TEACHER.get(method, {}) | SMALLER_LR.get(method, {})
    with measured_once.five_subsets():
        run = running.trained(method, tmp_path / "run", **keys)
    rows = {row["name"]: row for row in run.results["table"]}
    assert rows["trained"]["knn_accuracy"] > rows["untrained"]["knn_accuracy"]
    assert rows["trained"]["few_labels_accuracy"] > rows["untrained"]["few_labels_accuracy"]
    assert run.metrics[-1]["effective_rank"] > LEAST_RANK.get(method, 8.0)
    expected = "few dimensions" if method in LEAST_RANK else "healthy"
    assert run.results["verdict"]["kind"] == expected, run.results["verdict"]
    assert WARNING not in (run.path / "log.txt").read_text()


@pytest.mark.full
@pytest.mark.parametrize("method", sorted(CATALOG))
def test_defaults_get_no_warning_on_digits(method: str, tmp_path: Path) -> None:
    # At least 100 steps.
    keys = {"epochs": 52 if CATALOG[method].recipe_for({}).get("batch_size") == 512 else 20}
    run = twofold.pretrain("digits", method=method, out=tmp_path / "run", **keys | FASTER_TEACHER.get(method, {}))
    expected = "few dimensions" if method in LEAST_RANK else "healthy"
    assert run.results["verdict"]["kind"] == expected, run.results["verdict"]
    assert WARNING not in (run.path / "log.txt").read_text()


@pytest.mark.parametrize("method", sorted(CATALOG))
def test_defaults_train_a_step_on_digits(method: str) -> None:
    config, source = pretrain.configure("digits", method, {})
    trainer = Trainer(config, pretrain.read_data(config, source, Display(quiet=True)), Display(quiet=True))
    trainer.method.train()
    trainer.take_step(0)
    assert trainer.observers.means.read()["loss"] == pytest.approx(0, abs=1e4)
    # For all other methods, few dimensions are a collapse and must be reported as one.
    assert bool(trainer.method.few_dimensions) == (method in ("quadratic", "supervised"))


VARIANTS = [
    ("frossl", {"logarithm": False}),
    ("frossl", {"logarithm": False, "unit_trace": True}),
    ("frossl", {"views": 4, "batch_size": 128}),
    ("frossl", {"centre": False, "weight": 2.0}),
    ("diet", {"normalize": True, "projector": (32, 16)}),
    ("mse-diet", {"normalize": True, "projector": (32, 16)}),
    ("alpha-cl", {"rule": "entropy"}),
    ("alpha-cl", {"rule": "square"}),
    ("alpha-cl", {"rule": "inverse"}),
    ("alpha-cl", {"rule": "heuristic_inverse"}),
    ("alpha-cl", {"normalized": False}),
    ("alpha-cl", {"through_importance": True}),
    *[
        ("contrastive", {"family": family})
        for family in ("mine", "triplet", "soft_triplet", "tuplet", "lifted", "modified_triplet")
    ],
    ("byol", {"distance": "euclidean"}),
    ("byol", {"views": 3}),
    ("byol", {"predictor_width": 0}),
    ("directpred", {"distance": "euclidean"}),
    ("isoloss", {"exponent": 1.0}),
    ("isoloss", {"general_eigenvectors": True}),
    ("isoloss", {"teacher_momentum": None}),
    ("isoloss", {"teacher_momentum": None, "exponent": 1.0, "distance": "euclidean"}),
    ("ridge-graph", {"graph.source": "labels"}),
    ("ridge-graph", {"graph.source": "neighbours"}),
    ("graph-vicreg", {"graph.source": "labels", "graph.labelled_fraction": 0.1, "graph.balance": True}),
    ("orthogonal-head", {"graph.source": "labels"}),
    ("w-mse", {"sub_batch": 256}),
    ("moco", {"views": 3}),
    ("corinfomax", {"views": 3}),
    ("swav", {"queue": 0}),
    ("swav", {"views": 3}),
    ("dino", {"views": 3}),
    ("supervised", {"views": 2}),
    ("moco", {"augment.local_views": 2}),
    ("swav", {"augment.local_views": 3, "augment.local_size": 5}),
    ("dino", {"augment.local_views": 2, "augment.local_scale": (0.1, 0.3)}),
]


@pytest.mark.parametrize("method, parameters", VARIANTS, ids=lambda value: str(value))
def test_steps_with_every_option_change_every_weight(method: str, parameters: dict[str, object]) -> None:
    trainer = running.trainer(method, **({"batch_size": 128} | running.quick(method, **parameters)))
    trainer.method.train()
    before = {name: value.detach().clone() for name, value in trainer.method.trained_parameters()}
    for step in range(2):
        trainer.take_step(step)
    for name, value in trainer.method.trained_parameters():
        assert torch.isfinite(value).all(), name
        # A bias before a centring loss has no gradient, and weight decay does not apply to biases.
        if value.ndim > 1:
            assert not torch.equal(before[name], value), name


def correlation_of(trainer: object) -> Tensor:
    return trainer.method.direct.correlation.clone()


def test_running_correlation_is_updated_once_per_step_and_never_in_evaluation() -> None:
    trainer = running.trainer("directpred", **running.quick("directpred", batch_size=128))
    trainer.method.train()
    seen: list[Tensor] = []
    forward = trainer.method.forward

    def spy(views: Tensor, batch: Batch, **options: object) -> object:
        embeddings = forward(views, batch, **options)
        seen.append(embeddings.z.detach().double().flatten(0, 1))
        return embeddings

    trainer.method.forward = spy
    expected = torch.zeros(64, 64, dtype=torch.float64)
    for step in range(3):
        trainer.take_step(step)
        expected = 0.998 * expected + 0.002 * seen[-1].T @ seen[-1] / len(seen[-1])
        torch.testing.assert_close(correlation_of(trainer), expected, rtol=1e-6, atol=1e-12)
    trainer.features(trainer.data.test)
    trainer.online_accuracy(trainer.data.test)
    torch.testing.assert_close(correlation_of(trainer), expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("method", ["byol", "directpred"])
def test_teacher_momentum_follows_a_cosine(method: str) -> None:
    trainer = running.trainer(method, **running.quick(method, batch_size=128))
    trainer.method.train()
    expected = [p.detach().double().clone() for p in trainer.method.teacher.parameters()]
    for step in range(3):
        trainer.take_step(step)
        progress = (step + 1) / trainer.total_steps
        tau = 1 - 0.01 * (torch.cos(torch.tensor(torch.pi * progress)).item() + 1) / 2
        student = [*trainer.method.encoder.parameters(), *trainer.method.projector.parameters()]
        expected = [tau * t + (1 - tau) * s.detach().double() for t, s in zip(expected, student, strict=True)]
    for ours, theirs in zip(trainer.method.teacher.parameters(), expected, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("method, is_constant", [("simsiam", True), ("byol", False)])
def test_only_simsiam_has_a_predictor_with_constant_learning_rate(method: str, is_constant: bool) -> None:
    trainer = running.trainer(method, **running.quick(method, batch_size=128, warmup_epochs=1))
    trainer.method.train()
    trainer.take_step(0)
    own = {id(parameter) for parameter in trainer.method.predictor.parameters()}
    for group in trainer.optimizer.param_groups:
        kept = is_constant and id(group["params"][0]) in own
        expected = trainer.config.scaled_lr if kept else trainer.rates[0].item()
        assert group["lr"].item() == pytest.approx(expected)
        assert not is_constant or len({id(parameter) in own for parameter in group["params"]}) == 1
    assert trainer.rates[0] < trainer.config.scaled_lr  # otherwise both rates would be equal
    assert not any(name.startswith("steady") for name in trainer.method.state_dict())


@pytest.mark.parametrize("method, scale", [("simsiam", 0.5), ("byol", 2.0)])
@pytest.mark.parametrize("views", [2, 3])
def test_pairs_of_views_are_averaged_by_simsiam_and_summed_by_byol(method: str, scale: float, views: int) -> None:
    """As in the papers; for BYOL, a pair costs 2 − 2 cos. The number of views does not change the scale of the loss."""
    method_of = running.trainer(method, **running.quick(method, batch_size=64, views=views)).method
    z, prediction, target = torch.randn(3, views, 64, 64).unbind()
    found = method_of.objective(Embeddings(z, z, torch.arange(64), prediction, None if method == "simsiam" else target))
    other = z if method == "simsiam" else target
    cosines = [
        nn.functional.cosine_similarity(prediction[v], other[w]) for v in range(views) for w in range(views) if v != w
    ]
    expected = -2 * scale * torch.stack(cosines).mean()
    torch.testing.assert_close(found.total, expected)


@pytest.mark.parametrize("method", ["byol", "directpred", "directcopy", "isoloss"])
def test_scale_multiplies_predictive_losses(method: str) -> None:
    z, prediction, target = torch.randn(3, 2, 64, 64, generator=torch.Generator().manual_seed(0)).unbind()
    totals = []
    for scale in (0.5, 1.5):
        built = running.trainer(method, **running.quick(method, batch_size=64, scale=scale)).method
        if built.direct is not None:
            built.direct.update(z)
            prediction = None
        totals.append(built.objective(Embeddings(z, z, torch.arange(64), prediction, target)).total)
    torch.testing.assert_close(totals[1], 3 * totals[0])
    assert totals[0] != 0


def test_diet_rows_belong_to_images_and_not_to_batch_positions() -> None:
    trainer = running.trainer("diet", batch_size=64)
    batch = trainer.loader.batch(0)
    trainer.method.train()
    with torch.no_grad():
        embeddings = trainer.method(trainer.augment(batch.images, batch.position, trainer.clock), batch)
        logits = embeddings.z[0] @ trainer.method.head.weight.T
        own = torch.searchsorted(trainer.data.train.index, batch.index)
        expected = nn.functional.cross_entropy(logits, own, label_smoothing=0.8)
        torch.testing.assert_close(trainer.method.objective(embeddings).total, expected)
    assert torch.equal(trainer.data.train.labels[own], batch.labels)


def test_builders_take_parts_and_keywords_only() -> None:
    for entry in CATALOG.values():
        names = list(entry.build.__code__.co_varnames[: entry.build.__code__.co_argcount])
        assert names == ["parts"], entry.name
        assert entry.summary.endswith("."), entry.name
    assert {"encoder", "features", "images", "epochs", "views", "local_views"} == set(Parts.__dataclass_fields__)


ABOUT = dict.fromkeys(("paper", "formula", "source", "state", "memory", "choose"), "mine")


@pytest.mark.parametrize(
    "loss, message",
    [
        (lambda z: z.square().mean(), "returns a Tensor: return LossTerms"),
        (lambda z: LossTerms(z.square().mean(dim=0), {}), "'total' that is not a scalar tensor"),
        (lambda z: LossTerms(z.square().mean(), {"part": 1.0}), "'part' that is not a scalar tensor"),
        (lambda z: LossTerms(z.square().mean(), [z.mean()]), "returns a list of terms: return a dict"),
        (lambda z: LossTerms(z.numel() * torch.ones((), dtype=torch.int64), {}), "'total' that is not a scalar tensor"),
        (lambda z: LossTerms(z.square().mean().detach(), {}), "a loss without a gradient: it does not depend on e.z"),
        (
            lambda z: LossTerms((z * nn.Parameter(torch.ones(8))).mean(), {}),
            r"a weight of shape \[8\] that is not part of the method",
        ),
    ],
)
def test_invalid_results_of_an_own_objective_raise_an_error(
    loss: Callable[[Tensor], object], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mine(parts: Parts) -> Method:
        return Method(parts, mlp(parts.features, (8,)), lambda e: loss(e.z))

    monkeypatch.setitem(CATALOG, "mine", registry.Entry("mine", mine, "covariance", summary="", recipe={}, **ABOUT))
    with pytest.raises(TwofoldError, match=message):
        running.trainer("mine")


def test_option_without_effect_raises_an_error() -> None:
    with pytest.raises(TwofoldError, match="unit_trace=true has no effect under the logarithm"):
        running.trainer("frossl", unit_trace=True)


class ReturnsNone(nn.Module):
    def forward(self, x: Tensor) -> None: ...


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda parts: None, "mine's function returns a NoneType: return Method"),  # noqa: ARG005
        (lambda parts: Method(parts, nn.Linear(10, 8), zero), "mine's projector does not take 256 features"),
        (lambda parts: Method(parts, None, zero), r"Method's projector is a NoneType: pass a module, such as mlp\("),
        (lambda parts: Method(parts, nn.Unflatten(1, (2, -1)), zero), r"\[N, D\]; it returned \(2, 2, 128\) for N = 2"),
        (lambda parts: Method(parts, ReturnsNone(), zero), r"\[N, D\]; it returned NoneType for N = 2"),
        *(
            (lambda parts, m=momentum: Method(parts, nn.Identity(), zero, teacher_momentum=m), "is not from 0 to 1")
            for momentum in (2.0, -0.1, math.nan)
        ),
    ],
)
def test_invalid_results_of_an_own_builder_raise_an_error(
    build: Callable[[Parts], Method], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CATALOG, "mine", registry.Entry("mine", build, "own", "", "", {}))
    with pytest.raises(TwofoldError, match=message):
        running.trainer("mine")


def zero(e: Embeddings) -> LossTerms:
    return LossTerms(0 * e.z.sum(), {})


def test_layers_passed_to_method_are_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    def mine(parts: Parts) -> Method:
        head = nn.Linear(8, 3)
        return Method(parts, mlp(parts.features, (8,)), lambda e: LossTerms(head(e.z).mean(), {}), head=head)

    monkeypatch.setitem(CATALOG, "mine", registry.Entry("mine", mine, "own", "", "", {}))
    method = running.trainer("mine").method
    assert any(parameter is method.head.weight for _, parameter in method.trained_parameters())


def test_objective_is_checked_with_the_embeddings_that_forward_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Embeddings] = []

    def mine(parts: Parts) -> Method:
        return Method(parts, mlp(parts.features, (8,)), lambda e: seen.append(e) or LossTerms(e.z.mean(), {}))

    monkeypatch.setitem(CATALOG, "mine", registry.Entry("mine", mine, "own", "", "", {}))
    running.trainer("mine")
    assert seen
    assert all(each.prediction is None and each.target is None for each in seen)


def test_every_method_of_the_catalog_has_complete_documentation() -> None:
    for entry in CATALOG.values():
        about = (entry.paper, entry.summary, entry.source, entry.formula, entry.state, entry.memory, entry.choose)
        assert all(about), entry.name
        assert entry.family != "own"


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_every_method_has_a_formula_in_latex_and_explains_its_symbols(name: str) -> None:
    entry = CATALOG[name]
    assert entry.latex.startswith(r"\mathcal{L} = ")
    assert entry.symbols.endswith(".")
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", entry.latex):
        depth += 1 if brace == "{" else -1
        assert depth >= 0
    assert depth == 0
    assert entry.latex.count(r"\left") == entry.latex.count(r"\right")


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_latex_of_every_method_becomes_mathml(name: str) -> None:
    converter = pytest.importorskip("latex2mathml.converter")
    assert converter.convert(CATALOG[name].latex).startswith("<math")


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_every_key_of_a_method_has_an_explanation(name: str) -> None:
    assert not [key.name for key in registry.schema(name).values() if not key.help]


def test_taken_names_and_untyped_or_reserved_keys_raise_an_error() -> None:
    def simclr(parts: Parts) -> Method: ...

    def untyped(parts: Parts, *, k=3) -> Method: ...  # type: ignore[no-untyped-def]

    with pytest.raises(TwofoldError, match="there is already a method 'simclr'"):
        registry.entry(family="contrastive", recipe={}, **ABOUT)(simclr)
    with pytest.raises(TwofoldError, match="untyped's 'k' is a key: give it a type and a default"):
        registry.entry(family="contrastive", recipe={}, **ABOUT)(untyped)

    def shadowing(parts: Parts, *, lr: float = 7.0) -> Method: ...

    with pytest.raises(TwofoldError, match="shadowing's 'lr' is a key of every run: give the parameter another name"):
        registry.entry(family="contrastive", recipe={}, **ABOUT)(shadowing)
    assert not {"untyped", "shadowing"} & CATALOG.keys()


@dataclass(frozen=True)
class Foreign:
    speed: float = 1.0


def listed(parts: Parts, *, weights: list[float] = [1.0]) -> Method: ...  # noqa: B006


def mapped(parts: Parts, *, weights: dict | None = None) -> Method: ...  # type: ignore[type-arg]


def boxed(parts: Parts, *, foreign: Foreign = Foreign()) -> Method: ...  # noqa: B008


def disguised(parts: Parts, *, graph: Foreign = Foreign()) -> Method: ...  # noqa: B008


def loud(parts: Parts, *, quiet: float = 1.0) -> Method: ...


def positional(parts: Parts, weight: float = 1.0) -> Method: ...


def dotted(parts: Parts, *, a__b: float = 1.0) -> Method: ...


def missing(parts: Parts, *, tau: float = None) -> Method: ...  # type: ignore[assignment]  # noqa: RUF013


def negative(parts: Parts, *, weight: Positive = -1.0) -> Method: ...


def broken(parts: Parts, *, k: int = 2.5) -> Method: ...  # type: ignore[assignment]


def endless(parts: Parts, *, k: float = math.inf) -> Method: ...


def other(parts: Parts, *, kind: Literal["a", "b"] = "c") -> Method: ...  # type: ignore[assignment]


@pytest.mark.parametrize(
    "build, message",
    [
        (listed, r"listed's 'weights' .* type list\[float\]: use .* tuple\[float, ...\]"),
        (mapped, r"mapped's 'weights' .* type dict \| None: use"),
        (boxed, "boxed's 'foreign' is a dataclass: give each of its values a parameter of its own"),
        (disguised, "disguised's 'graph' is a dataclass"),
        (loud, "loud's 'quiet' is an argument of twofold.pretrain: give it another name"),
        (dotted, "dotted's 'a__b' has '__', which stands for a dot in Python: write '_' instead"),
        (missing, r"missing's 'tau' has the default none, which is not a number: add '\| None' to its type"),
        (negative, "negative's 'weight' has the default -1, which is not a number above 0: change type or default"),
        (broken, "broken's 'k' has the default 2.5, which is not a whole number"),
        (endless, "endless's 'k' has the default inf, which is not a number"),
        (other, "other's 'kind' has the default c, which is not a or b"),
        (
            positional,
            r"'weight' is not a keyword parameter: write '\*,' before it, as in \(parts, \*, weight=...\)",
        ),
    ],
)
def test_invalid_parameters_of_a_method_raise_an_error(build: Callable[..., Method], message: str) -> None:
    with pytest.raises(TwofoldError, match=message):
        registry.entry()(build)
    assert build.__name__ not in CATALOG


def test_defaults_get_the_types_that_loading_a_file_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "CATALOG", {})

    def mine(
        parts: Parts,
        *,
        weight: float = np.float32(0.5),  # type: ignore[assignment]
        k: int = np.int64(3),  # type: ignore[assignment]
        on: bool = np.True_,  # type: ignore[assignment]
        widths: Widths = [8, 4],  # type: ignore[assignment]  # noqa: B006
    ) -> Method: ...

    registry.entry()(mine)
    resolved = resolve(registry.schema("mine"), {"user": {"method": "mine"}})
    assert resolved.parameters == {"weight": 0.5, "k": 3, "on": True, "widths": (8, 4)}
    assert [type(value) for value in resolved.parameters.values()] == [float, int, bool, tuple]
    assert load(dump(resolved), registry.schema_of_run).parameters == resolved.parameters


def test_wrong_use_of_entry_raises_an_error() -> None:
    with pytest.raises(TwofoldError, match=r"@entry needs parentheses: write @entry\(\)"):
        registry.entry(positional)  # type: ignore[arg-type]
    with pytest.raises(TwofoldError, match="entry takes no 'recipes', did you mean 'recipe'"):
        registry.entry(recipes={})  # type: ignore[arg-type]


def test_entry_reserves_the_arguments_of_pretrain() -> None:
    parameters = inspect.signature(twofold.pretrain).parameters.values()
    arguments = {parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD}
    assert arguments == set(registry.OF_PRETRAIN)
