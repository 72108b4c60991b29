"""Predictive methods: one view meets the other through a predictor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from twofold.errors import TwofoldError
from twofold.keys import Count, NonNegative, Positive, Probability, Widths
from twofold.methods.catalog.lazy_modules import methods, models, nn, objectives, torch
from twofold.methods.catalog.recipes import ASYMMETRIC, SOLO_LARS, SYMMETRIC_WEAK
from twofold.methods.registry import entry
from twofold.types import Embeddings, LossTerms

if TYPE_CHECKING:
    from torch import Tensor

    from twofold.methods import Method, Parts
    from twofold.models import DirectPredictor

Distance = Literal["cosine", "euclidean"]
Momentum = Probability | None  # of a teacher; none: there is no teacher, and targets come from the network itself
Scale = Annotated[Positive, "times the sum over both orders of views"]


def with_or_without_teacher(
    weight_decay: float, without: Mapping[str, Any] = MappingProxyType({})
) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """IsoLoss, appendix D: LARS lr 1.0 with a teacher, SGD lr 0.1 without; crops and solarisation as solo's. `without`:
    what else the method needs where there is no teacher."""

    def recipe(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        if parameters["teacher_momentum"] is not None:
            return SOLO_LARS | ASYMMETRIC | {"lr": 1.0, "weight_decay": weight_decay}
        return {**ASYMMETRIC, "optimizer": "sgd", "lr": 0.1, "weight_decay": weight_decay, **without}

    return recipe


@entry(
    family="predictive",
    paper="BYOL (Grill et al. 2020)",
    recipe=with_or_without_teacher(1e-5),
    formula="−2 cos(q(z_v), sg(t_w)), q a trained predictor, t the teacher's embedding; the sum over both orders",
    source="solo byol.yaml, whose loss is 2 − 2 cos as its paper's; without a teacher SGD lr 0.1 (IsoLoss, appendix D)",
    state="teacher",
    memory="a second network and its forward pass",
    choose="Strong at long training and small batches.",
)
def byol(
    parts: Parts,
    *,
    teacher_momentum: Momentum = 0.99,
    distance: Distance = "cosine",
    stop_gradient: bool = True,
    predictor: bool = True,
    predictor_width: Count = 4096,
    scale: Scale = 2.0,
    projector: Widths = (4096, 256),
) -> Method:
    """A trained predictor of one view's embedding meets a slow teacher's embedding of the other."""
    return predictive(
        parts,
        models.mlp(parts.features, projector),
        predictor=models.mlp(projector[-1], (predictor_width, projector[-1])) if predictor else None,
        teacher_momentum=teacher_momentum,
        distance=distance,
        stop_gradient=stop_gradient,
        scale=scale,
    )


@entry(
    family="predictive",
    paper="SimSiam (Chen and He 2021)",
    recipe=SYMMETRIC_WEAK | {"optimizer": "sgd", "lr": 0.5, "weight_decay": 1e-5},
    formula="−cos(q(z_v), sg(z_w)); the mean over both orders",
    source="solo simsiam.yaml, augmentations/symmetric_weak.yaml; the predictor's learning rate never changes",
    state="none",
    memory="embeddings only",
    choose="BYOL's idea at the cost of one network.",
)
def simsiam(
    parts: Parts,
    *,
    distance: Distance = "cosine",
    stop_gradient: bool = True,
    predictor: bool = True,
    predictor_width: Count = 512,
    steady_predictor: bool = True,
    projector: Widths = (2048, 2048, 2048),
) -> Method:
    """BYOL without a teacher: a narrow predictor and the stop-gradient are enough."""
    return predictive(
        parts,
        models.mlp(parts.features, projector, last_norm=True),
        predictor=models.mlp(projector[-1], (predictor_width, projector[-1])) if predictor else None,
        distance=distance,
        stop_gradient=stop_gradient,
        scale=0.5,
        steady_predictor=steady_predictor,
    )


@entry(
    family="predictive",
    paper="DirectPred (Tian et al. 2021)",
    recipe=with_or_without_teacher(4e-4),
    formula="−cos(W z_v, sg(t_w)), W = U (S/max S + ε)^½ Uᵀ from C = E[zzᵀ] = U S Uᵀ",
    source="IsoLoss, appendix D",
    state="teacher, running correlation",
    memory="a second network and its forward pass, D² in float64",
    choose="To study predictors: its eigenvalues follow equations. Without a teacher it fails.",
)
def directpred(
    parts: Parts,
    *,
    exponent: NonNegative = 0.5,
    epsilon: NonNegative = 0.0,
    correlation_momentum: Probability = 0.998,
    teacher_momentum: Momentum = 0.99,
    distance: Distance = "cosine",
    stop_gradient: bool = True,
    predictor: bool = True,
    scale: Scale = 1.0,
    projector: Widths = (4096, 256),
) -> Method:
    """A linear predictor in closed form, from the spectrum of the embeddings' correlation."""
    return predictive(
        parts,
        models.mlp(parts.features, projector),
        direct=direct_predictor(projector[-1], exponent, correlation_momentum, epsilon, distance)
        if predictor
        else None,
        teacher_momentum=teacher_momentum,
        distance=distance,
        stop_gradient=stop_gradient,
        scale=scale,
    )


@entry(
    family="predictive",
    paper="DirectCopy (Wang et al. 2021)",
    recipe=with_or_without_teacher(4e-4),
    formula="−cos(W z_v, sg(t_w)), W = C/max S + ε",
    source="IsoLoss, appendix D",
    state="teacher, running correlation",
    memory="a second network and its forward pass, D² in float64",
    choose="DirectPred without a matrix root.",
)
def directcopy(
    parts: Parts,
    *,
    epsilon: NonNegative = 0.25,
    correlation_momentum: Probability = 0.998,
    teacher_momentum: Momentum = 0.99,
    distance: Distance = "cosine",
    scale: Scale = 1.0,
    projector: Widths = (4096, 256),
) -> Method:
    """The predictor is the embeddings' correlation itself, plus a multiple of the identity."""
    direct = direct_predictor(projector[-1], 1.0, correlation_momentum, epsilon, distance)
    return predictive(
        parts,
        models.mlp(parts.features, projector),
        direct=direct,
        teacher_momentum=teacher_momentum,
        distance=distance,
        scale=scale,
    )


@entry(
    family="predictive",
    paper="IsoLoss (Halvagal et al. 2023)",
    recipe=with_or_without_teacher(4e-4, {"weight_decay": 1e-4, "correlation_momentum": 0.5, "scale": 2.0}),
    formula="−cos(z_v + sg(W z_v − z_v), sg(t_w)), W as DirectPred's",
    source="IsoLoss, appendix D; without a teacher the authors' code (`correlation_momentum=0.5`, `scale=2`, "
    "`weight_decay=1e-4`): with the printed 0.998 and no teacher it collapses, see [results.md](results.md)",
    state="teacher (if any), running correlation",
    memory="a second network and its forward pass (with a teacher), D² in float64",
    choose="A closed-form predictor that also trains without a teacher (`teacher_momentum=none`).",
)
def isoloss(
    parts: Parts,
    *,
    exponent: NonNegative = 0.5,
    epsilon: NonNegative | None = None,
    correlation_momentum: Probability = 0.998,
    teacher_momentum: Momentum = 0.99,
    distance: Distance = "cosine",
    scale: Scale = 1.0,
    projector: Widths = (4096, 256),
) -> Method:
    """DirectPred with gradients that move every eigenvalue at one rate; also trains without a teacher.

    epsilon none: 0.25 for exponent 1, else 0.
    """
    if epsilon is None:
        epsilon = 0.25 if exponent == 1 else 0.0
    return predictive(
        parts,
        models.mlp(parts.features, projector),
        direct=direct_predictor(projector[-1], exponent, correlation_momentum, epsilon, distance),
        teacher_momentum=teacher_momentum,
        distance=distance,
        isotropic=True,
        scale=scale,
    )


def direct_predictor(dim: int, exponent: float, momentum: float, epsilon: float, distance: Distance) -> DirectPredictor:
    """Cosines have no scale, so eigenvalues are relative to the largest; with distances they are not, and end at 1."""
    relative = distance == "cosine"
    return models.DirectPredictor(dim, exponent, momentum, normalize=relative, epsilon=epsilon, corrected=not relative)


def predictive(
    parts: Parts,
    projector: nn.Module,
    *,
    predictor: nn.Module | None = None,
    direct: DirectPredictor | None = None,
    teacher_momentum: float | None = None,
    distance: Distance = "cosine",
    stop_gradient: bool = True,
    isotropic: bool = False,
    scale: float = 1.0,
    steady_predictor: bool = False,
) -> Method:
    """Each view, through the predictor, meets each other view: `scale` times the sum over both orders; for more views
    as much as for two."""
    if teacher_momentum is not None and not stop_gradient:
        raise TwofoldError(
            "a teacher gets no gradient that could be stopped: stop_gradient=false needs teacher_momentum=none"
        )

    def objective(e: Embeddings) -> LossTerms:
        source = e.z if e.prediction is None else e.prediction
        target = e.z if e.target is None else e.target
        matrix = None if direct is None else direct.prepared()

        V = len(source)
        if V < 2:
            raise TwofoldError("one view has no other to predict")

        def met_by(step: int) -> Tensor:
            """The mean over all views, each with the one that many places after it."""
            other = target.roll(-step, dims=0)
            if isotropic and matrix is not None:
                return objectives.isoloss(source, other, matrix, distance=distance).total
            return objectives.asymmetric(source, other, matrix, distance=distance, stop_gradient=stop_gradient).total

        total = 2 * scale * torch.stack([met_by(step) for step in range(1, V)]).mean()
        return LossTerms(total, {distance: total.detach()})

    return methods.Method(
        parts,
        projector,
        objective,
        predictor=predictor,
        steady_predictor=steady_predictor,
        direct=direct,
        teacher_momentum=teacher_momentum,
    )
