"""Predictive methods: a predictor maps one view's embedding to the embedding of the other view."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from twofold.errors import TwofoldError
from twofold.keys import NonNegative
from twofold.methods.catalog.common import (
    ASYMMETRIC,
    SOLO_LARS,
    SYMMETRIC_WEAK,
    CorrelationMomentum,
    Distance,
    Exponent,
    GeneralEigenvectors,
    LossScale,
    OptionalTeacherMomentum,
    PredictiveDistance,
    PredictorWidth,
    Projector,
    StopGradient,
    methods,
    models,
    nn,
    objectives,
    torch,
)
from twofold.methods.registry import entry
from twofold.types import Embeddings, LossTerms

if TYPE_CHECKING:
    from torch import Tensor

    from twofold.methods import Method, Parts
    from twofold.models import DirectPredictor

BOTH_ORDERS = "With more than two views, twice the mean over v ≠ w replaces the sum over v ≠ w."


def with_or_without_teacher(
    weight_decay: float, without: Mapping[str, Any] = MappingProxyType({})
) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """The recipe of IsoLoss, appendix D: LARS with lr 1.0 if there is a teacher, SGD with lr 0.1 if there is none.

    Crops and solarisation are those of solo-learn. `without` holds more settings for a method without a teacher.
    """

    def recipe(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        if parameters["teacher_momentum"] is not None:
            return SOLO_LARS | ASYMMETRIC | {"lr": 1.0, "weight_decay": weight_decay}
        return {**ASYMMETRIC, "optimizer": "sgd", "lr": 0.1, "weight_decay": weight_decay, **without}

    return recipe


@entry(
    family="predictive",
    paper="BYOL (Grill et al. 2020)",
    recipe=with_or_without_teacher(1e-5),
    formula=(
        "−2 cos(q(z_v), sg(t_w)), the sum over both orders of two views; q is a trained predictor, t the teacher's "
        "embedding"
    ),
    latex=(
        r"\mathcal{L} = -\frac{2}{N} \sum_{n=1}^{N} \sum_{v \ne w} "
        r"\cos \left( q(z_{vn}),\, \operatorname{sg}(t_{wn}) \right)"
    ),
    symbols=(
        "z_vn is the embedding of view v of image n, for N images, and t_wn the teacher's embedding of view w, or z_wn "
        "if there is no teacher. q is the trained predictor and sg the stop-gradient. The factor 2 is `scale`. "
        f"{BOTH_ORDERS}"
    ),
    source=(
        "solo-learn's byol.yaml, whose loss is 2 − 2 cos as in the BYOL paper; without a teacher, SGD with lr 0.1 "
        "(IsoLoss, appendix D)"
    ),
    state="teacher",
    memory="a second network and its forward pass",
    choose="It performs well in long runs and with small batches.",
)
def byol(
    parts: Parts,
    *,
    teacher_momentum: OptionalTeacherMomentum = 0.99,
    distance: PredictiveDistance = "cosine",
    stop_gradient: StopGradient = True,
    predictor: Annotated[bool, "use the predictor; false: compare the embeddings themselves"] = True,
    predictor_width: PredictorWidth = 4096,
    scale: LossScale = 2.0,
    projector: Projector = (4096, 256),
) -> Method:
    """Trains a predictor that maps one view's embedding to a slow teacher's embedding of the other view."""
    return predictive(
        parts,
        models.mlp(parts.features, projector),
        predictor=trained_predictor(projector[-1], predictor_width) if predictor else None,
        teacher_momentum=teacher_momentum,
        distance=distance,
        stop_gradient=stop_gradient,
        scale=scale,
    )


def trained_predictor(dim: int, width: int) -> nn.Module:
    """A predictor with one hidden layer, or a matrix if the width is 0 (IsoLoss, Figure 4)."""
    return models.mlp(dim, (width, dim)) if width else nn.Linear(dim, dim, bias=False)


@entry(
    family="predictive",
    paper="SimSiam (Chen and He 2021)",
    recipe=SYMMETRIC_WEAK | {"optimizer": "sgd", "lr": 0.5, "weight_decay": 1e-5},
    formula="−cos(q(z_v), sg(z_w)), the mean over both orders of two views; q is a trained predictor",
    latex=(
        r"\mathcal{L} = -\frac{1}{2N} \sum_{n=1}^{N} \sum_{v \ne w} "
        r"\cos \left( q(z_{vn}),\, \operatorname{sg}(z_{wn}) \right)"
    ),
    symbols=(
        "z_vn is the embedding of view v of image n, for N images; q is the trained predictor and sg the "
        f"stop-gradient. {BOTH_ORDERS}"
    ),
    source=(
        "solo-learn's simsiam.yaml and augmentations/symmetric_weak.yaml; the predictor's learning rate stays constant"
    ),
    state="none",
    memory="embeddings only",
    choose="Like BYOL, but without the cost of a second network.",
)
def simsiam(
    parts: Parts,
    *,
    distance: PredictiveDistance = "cosine",
    stop_gradient: Annotated[bool, "send no gradient through the target; false: the embeddings collapse"] = True,
    predictor: Annotated[bool, "use the predictor; false: compare the embeddings themselves"] = True,
    predictor_width: PredictorWidth = 512,
    steady_predictor: Annotated[bool, "keep the predictor's learning rate constant during the run"] = True,
    projector: Projector = (2048, 2048, 2048),
) -> Method:
    """BYOL without a teacher: a narrow predictor and the stop-gradient prevent collapse."""
    return predictive(
        parts,
        models.mlp(parts.features, projector, last_norm=True),
        predictor=trained_predictor(projector[-1], predictor_width) if predictor else None,
        distance=distance,
        stop_gradient=stop_gradient,
        scale=0.5,
        steady_predictor=steady_predictor,
    )


@entry(
    family="predictive",
    paper="DirectPred (Tian et al. 2021)",
    recipe=with_or_without_teacher(4e-4),
    formula=(
        "−cos(W z_v, sg(t_w)), the sum over both orders of two views; W = U (S/max S + ε)^½ Uᵀ, where C = E[zzᵀ] = "
        "U S Uᵀ is a running mean"
    ),
    latex=(
        r"\mathcal{L} = -\frac{1}{N} \sum_{n=1}^{N} \sum_{v \ne w} "
        r"\cos \left( W z_{vn},\, \operatorname{sg}(t_{wn}) \right), \quad "
        r"W = U \left( \frac{S}{\max S} + \varepsilon I \right)^{\alpha} U^\top, \quad C = U S U^\top"
    ),
    symbols=(
        "z_vn is the embedding of view v of image n, for N images, and t_wn the teacher's embedding of view w, or z_wn "
        "if there is no teacher. C[D, D] is the running mean of z zᵀ, with eigenvalues S and eigenvectors U. α is "
        f"`exponent`, ε is `epsilon` and sg the stop-gradient. {BOTH_ORDERS}"
    ),
    source="IsoLoss, appendix D",
    state="teacher, running correlation",
    memory="a second network and its forward pass, D² in float64",
    choose="To study predictors: equations describe the eigenvalues of this one. It collapses without a teacher.",
)
def directpred(
    parts: Parts,
    *,
    exponent: Exponent = 0.5,
    epsilon: Annotated[NonNegative, "ε, added to the eigenvalues in the predictor"] = 0.0,
    correlation_momentum: CorrelationMomentum = 0.998,
    general_eigenvectors: GeneralEigenvectors = False,
    teacher_momentum: OptionalTeacherMomentum = 0.99,
    distance: PredictiveDistance = "cosine",
    stop_gradient: StopGradient = True,
    predictor: Annotated[bool, "use the predictor; false: compare the embeddings themselves"] = True,
    scale: LossScale = 1.0,
    projector: Projector = (4096, 256),
) -> Method:
    """Computes a linear predictor in closed form from the eigenvalues of the embeddings' correlation matrix."""
    return predictive(
        parts,
        models.mlp(parts.features, projector),
        direct=direct_predictor(
            projector[-1], exponent, correlation_momentum, epsilon, distance, general=general_eigenvectors
        )
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
    formula=(
        "−cos(W z_v, sg(t_w)), the sum over both orders of two views; W = C/max S + εI, where S are the eigenvalues of "
        "C = E[zzᵀ], a running mean"
    ),
    latex=(
        r"\mathcal{L} = -\frac{1}{N} \sum_{n=1}^{N} \sum_{v \ne w} "
        r"\cos \left( W z_{vn},\, \operatorname{sg}(t_{wn}) \right), \quad W = \frac{C}{\max S} + \varepsilon I"
    ),
    symbols=(
        "z_vn is the embedding of view v of image n, for N images, and t_wn the teacher's embedding of view w, or z_wn "
        "if there is no teacher. C[D, D] is the running mean of z zᵀ, with eigenvalues S; ε is `epsilon` and sg the "
        f"stop-gradient. {BOTH_ORDERS}"
    ),
    source="IsoLoss, appendix D",
    state="teacher, running correlation",
    memory="a second network and its forward pass, D² in float64",
    choose="Like DirectPred, but without a matrix root.",
)
def directcopy(
    parts: Parts,
    *,
    epsilon: Annotated[NonNegative, "ε, added to the eigenvalues in the predictor"] = 0.25,
    correlation_momentum: CorrelationMomentum = 0.998,
    teacher_momentum: OptionalTeacherMomentum = 0.99,
    distance: PredictiveDistance = "cosine",
    scale: LossScale = 1.0,
    projector: Projector = (4096, 256),
) -> Method:
    """Uses the correlation matrix of the embeddings, plus a multiple of the identity, as the predictor."""
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
    formula="−cos(z_v + sg(W z_v − z_v), sg(t_w)), the sum over both orders of two views; W is that of DirectPred",
    latex=(
        r"\mathcal{L} = -\frac{1}{N} \sum_{n=1}^{N} \sum_{v \ne w} "
        r"\cos \left( z_{vn} + \operatorname{sg}(W z_{vn} - z_{vn}),\, \operatorname{sg}(t_{wn}) \right), \quad "
        r"W = U \left( \frac{S}{\max S} + \varepsilon I \right)^{\alpha} U^\top, \quad C = U S U^\top"
    ),
    symbols=(
        "z_vn is the embedding of view v of image n, for N images, and t_wn the teacher's embedding of view w, or z_wn "
        "if there is no teacher. C[D, D] is the running mean of z zᵀ, with eigenvalues S and eigenvectors U. α is "
        "`exponent`, ε is `epsilon`, and sg is the stop-gradient, so that gradients pass the predictor W unchanged. "
        f"{BOTH_ORDERS}"
    ),
    source="IsoLoss, appendix D. Without a teacher, the settings are those of the authors' code "
    "(`correlation_momentum=0.5`, `scale=2`, `weight_decay=1e-4`): with the published momentum of 0.998 and no "
    "teacher, the method collapses (see [Results](results.md))",
    state="teacher (if any), running correlation",
    memory="a second network and its forward pass (with a teacher), D² in float64",
    choose="For a closed-form predictor that also trains without a teacher (`teacher_momentum=none`).",
)
def isoloss(
    parts: Parts,
    *,
    exponent: Exponent = 0.5,
    epsilon: Annotated[
        NonNegative | None, "ε, added to the eigenvalues in the predictor; none: 0.25 if exponent=1, else 0"
    ] = None,
    correlation_momentum: CorrelationMomentum = 0.998,
    general_eigenvectors: GeneralEigenvectors = False,
    teacher_momentum: OptionalTeacherMomentum = 0.99,
    distance: PredictiveDistance = "cosine",
    scale: LossScale = 1.0,
    projector: Projector = (4096, 256),
) -> Method:
    """Changes DirectPred's gradients so that all eigenvalues grow at the same rate; also trains without a teacher."""
    if epsilon is None:
        epsilon = 0.25 if exponent == 1 else 0.0
    return predictive(
        parts,
        models.mlp(parts.features, projector),
        direct=direct_predictor(
            projector[-1], exponent, correlation_momentum, epsilon, distance, general=general_eigenvectors
        ),
        teacher_momentum=teacher_momentum,
        distance=distance,
        isotropic=True,
        scale=scale,
    )


def direct_predictor(
    dim: int, exponent: float, momentum: float, epsilon: float, distance: Distance, *, general: bool = False
) -> DirectPredictor:
    """The closed-form predictor for one of the two distances.

    With the cosine distance the scale of the predictor has no effect, so its eigenvalues are relative to the largest.
    With the euclidean distance they are absolute, and converge to 1.
    """
    relative = distance == "cosine"
    return models.DirectPredictor(
        dim, exponent, momentum, normalize=relative, epsilon=epsilon, corrected=not relative, general=general
    )


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
    """A method that predicts each view from each other view.

    The loss is `scale` times the sum over both orders of two views. With more views, it is twice the mean over ordered
    pairs, which has the same size.
    """
    if teacher_momentum is not None and not stop_gradient:
        raise TwofoldError(
            "stop_gradient=false has no effect with a teacher, which never gets a gradient: add teacher_momentum=none"
        )

    def objective(e: Embeddings) -> LossTerms:
        source = e.z if e.prediction is None else e.prediction
        target = e.z if e.target is None else e.target
        matrix = None if direct is None else direct.prepared()

        V = len(source)
        if V < 2:
            raise TwofoldError("a predictive method needs two views or more, not views=1")

        def mean_loss(step: int) -> Tensor:
            """The mean over all views, each with the view that is `step` places after it."""
            other = target.roll(-step, dims=0)
            if isotropic and matrix is not None:
                return objectives.isoloss(source, other, matrix, distance=distance).total
            return objectives.asymmetric(source, other, matrix, distance=distance, stop_gradient=stop_gradient).total

        total = 2 * scale * torch.stack([mean_loss(step) for step in range(1, V)]).mean()
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
