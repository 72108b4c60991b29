"""Covariance methods: dimensions against dimensions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from twofold.errors import TwofoldError
from twofold.keys import Count, NonNegative, Positive, Probability
from twofold.methods.catalog.common import (
    ASYMMETRIC,
    MIDDLE,
    SOLO_LARS,
    STRONG_COLOUR,
    Projector,
    methods,
    models,
    nn,
    objectives,
)
from twofold.methods.registry import entry
from twofold.types import Embeddings, LossTerms

if TYPE_CHECKING:
    from torch import Tensor

    from twofold.methods import Method, Parts


def _narrower(batch_size: int) -> dict[str, Any]:
    """In FroSSL the distance has weight D/N: 4 in its recipe. Small batches do better with 2, and collapse with 16."""
    return {} if batch_size >= 256 else {"projector": (2048, 2048, 2 * batch_size)}


@entry(
    family="covariance",
    paper="FroSSL (Skean et al. 2024)",
    recipe=SOLO_LARS | {"lr": 0.3, "weight_decay": 1e-6},
    continued=MIDDLE | {"epochs": 10},
    formula="Σ_v log‖Z_vᵀZ_v‖²_F + (λ/N) Σ_{v<w} ‖Z_v − Z_w‖²_F, with columns of Z centred and scaled to unit norm",
    latex=(
        r"\mathcal{L} = \sum_{v=1}^{V} \log \left\lVert Z_v^\top Z_v \right\rVert_F^2 "
        r"+ \frac{\lambda}{N} \sum_{v<w} \left\lVert Z_v - Z_w \right\rVert_F^2"
    ),
    symbols=(
        "Z_v[N, D] are the embeddings of view v of N images, one row for each image, with its D columns centred and "
        "scaled to unit norm over the batch; V is the number of views. λ is `weight`, which is 1 in the paper. With "
        "`centre=false`, the columns are scaled only, as in the authors' current code and in lightly."
    ),
    source="the paper, section 6.1, with the width D of its appendix B.1; augmentation: Twofold's defaults",
    state="none",
    memory="V·min(N, D)²",
    choose="Start with this method. It has little to tune (the width of its projector follows the batch size), learns "
    "quickly early in a run, and accepts any number of views.",
    few_images={"projector": (512, 512, 64)},  # narrower and faster, and no worse with so few images
    by_batch=_narrower,
)
def frossl(
    parts: Parts,
    *,
    weight: Annotated[NonNegative, "weight λ of the distance between views; the paper has no weight, which is 1"] = 1.0,
    logarithm: Annotated[bool, "take the logarithm of the norms; false: an ablation of the paper"] = True,
    unit_trace: Annotated[
        bool, "divide each correlation matrix by its trace D, as the authors' code does; needs logarithm=false"
    ] = False,
    centre: Annotated[
        bool,
        "subtract the mean of each column of the embeddings, so that the loss is about covariances as in the paper; "
        "false: as in the authors' current code and in lightly",
    ] = True,
    projector: Projector = (2048, 2048, 1024),
) -> Method:
    """Makes each view's correlation matrix small in Frobenius norm, and brings views together; needs no loss weight."""
    if logarithm and unit_trace:
        raise TwofoldError("unit_trace=true has no effect under the logarithm: set logarithm=false, or leave it out")
    terms: Any = {"weight": weight, "logarithm": logarithm, "unit_trace": unit_trace}

    def objective(e: Embeddings) -> LossTerms:
        return objectives.frossl(e.z, centre=centre, **terms)

    of_moments = methods.OfMoments(objectives.moments, partial(objectives.frossl_of_moments, **terms), parts.views)
    return methods.Method(
        parts,
        models.mlp(parts.features, projector),
        objective,
        of_moments=of_moments if centre else None,
    )


@entry(
    family="covariance",
    paper="VICReg (Bardes et al. 2022)",
    recipe=SOLO_LARS | {"lr": 0.3, "weight_decay": 1e-4, "augment.solarize": 0.1},
    formula=(
        "25 s(Z, Z') + 25 [v(Z) + v(Z')] + [c(Z) + c(Z')], where s is the mean squared difference, v a hinge on "
        "standard deviations, and c the sum of squared covariances over D"
    ),
    latex=(
        r"\mathcal{L} = \frac{\lambda}{N D} \left\lVert Z_1 - Z_2 \right\rVert_F^2 "
        r"+ \frac{1}{D} \sum_{v=1}^{2} \left[ "
        r"\mu \sum_{d=1}^{D} \max \left( 0,\, 1 - \sqrt{C_{v,dd} + \varepsilon} \right) "
        r"+ \nu \sum_{d \ne e} C_{v,de}^2 \right]"
    ),
    symbols=(
        "Z_v[N, D] are the embeddings of view v of N images, C_v[D, D] is their covariance matrix over the batch, and "
        "ε is 0.0001. λ is `invariance`, μ `variance` and ν `covariance`. With V > 2 views, the first term is the mean "
        "over pairs of views, and the second is 2/V times the sum over views."
    ),
    source="solo-learn's vicreg.yaml, with its augmentations",
    state="none",
    memory="V·min(N, D)²",
    choose="For accuracy: in our results for 30 epochs on CIFAR-10, it is the most accurate without labels. Each of "
    "its three terms has a weight.",
)
def vicreg(
    parts: Parts,
    *,
    invariance: Annotated[NonNegative, "weight of the squared distance between views"] = 25.0,
    variance: Annotated[NonNegative, "weight of the hinge that keeps standard deviations above 1"] = 25.0,
    covariance: Annotated[NonNegative, "weight of the squared covariances"] = 1.0,
    projector: Projector = (2048, 2048, 2048),
) -> Method:
    """Brings views together, keeps each dimension's standard deviation at least 1, and makes covariances small."""

    weights: Any = {"invariance": invariance, "variance": variance, "covariance": covariance, "epsilon": 1e-4}

    def objective(e: Embeddings) -> LossTerms:
        return objectives.vicreg(e.z, **weights)

    of_moments = methods.OfMoments(objectives.moments, partial(objectives.vicreg_of_moments, **weights), parts.views)
    return methods.Method(parts, models.mlp(parts.features, projector), objective, of_moments=of_moments)


@entry(
    family="covariance",
    paper="Barlow Twins (Zbontar et al. 2021)",
    recipe=SOLO_LARS | ASYMMETRIC | {"lr": 0.3, "weight_decay": 1e-4},
    formula="0.1 [Σ_i (1 − c_ii)² + λ Σ_{i≠j} c_ij²], where c_ij is the correlation of dimensions i and j across views",
    latex=(
        r"\mathcal{L} = \beta \left[ \sum_{i=1}^{D} \left( 1 - c_{ii} \right)^2 "
        r"+ \lambda \sum_{i \ne j} c_{ij}^2 \right], \quad c = Z_1^\top Z_2"
    ),
    symbols=(
        "Z_v[N, D] are the embeddings of view v of N images, with columns centred and scaled to unit norm over the "
        "batch, so that c[D, D] are the correlations between two views. λ is `weight` and β is `scale`. With more than "
        "two views, the loss is the mean over pairs of views."
    ),
    source="solo-learn's barlow.yaml with its scale of 0.1, and augmentations/asymmetric.yaml; λ = 5e-3 as in the "
    "paper",
    state="none",
    memory="min(2N², D²) for each pair of views",
    choose="For covariance learning with a single weight. Its cost grows with the number of pairs of views.",
)
def barlow_twins(
    parts: Parts,
    *,
    weight: Annotated[Positive, "weight λ of the correlations between different dimensions"] = 5e-3,
    scale: Annotated[Positive, "factor of the loss"] = 0.1,
    projector: Projector = (2048, 2048, 2048),
) -> Method:
    """Brings the correlation matrix between two views close to the identity."""

    weights: Any = {"weight": weight, "scale": scale, "epsilon": 1e-5}

    def objective(e: Embeddings) -> LossTerms:
        return objectives.barlow_twins(e.z, **weights)

    of_moments = methods.OfMoments(
        partial(objectives.moments, within=False, between=True),
        partial(objectives.barlow_twins_of_moments, **weights),
        parts.views * (parts.views - 1) // 2,
    )
    return methods.Method(parts, models.mlp(parts.features, projector), objective, of_moments=of_moments)


@entry(
    family="covariance",
    paper="W-MSE (Ermolov et al. 2021)",
    recipe=STRONG_COLOUR | {"optimizer": "adam", "lr": 2e-3, "weight_decay": 1e-6},
    formula="2 − 2 cos(w_i, w_i'), where w is z whitened by the Cholesky factor of the covariance over a sub-batch",
    latex=(
        r"\mathcal{L} = \frac{1}{N} \sum_{n=1}^{N} \left( 2 - 2 \cos(w_{1n},\, w_{2n}) \right), \quad "
        r"w_{vn} = L_v^{-1} \left( z_{vn} - \bar{z}_v \right), \quad L_v L_v^\top = C_v"
    ),
    symbols=(
        "z_vn is the embedding of view v of image n, for N images; z̄_v and C_v are the mean and the covariance matrix "
        "of a view's embeddings over a sub-batch, and L_v is the Cholesky factor of C_v. With more than two views, the "
        "loss is the mean over pairs of views."
    ),
    source="solo-learn's wmse.yaml, with its augmentations",
    state="none",
    memory="V·D² for each sub-batch",
    choose="For narrow embeddings: a sub-batch must have more images than the embedding has dimensions.",
)
def w_mse(
    parts: Parts,
    *,
    sub_batch: Annotated[Count, "images that are whitened together"] = 128,
    shrinkage: Annotated[Probability, "weight of the identity in the covariance: (1 − s)·C + s·I"] = 0.0,
    projector: Projector = (1024, 64),
) -> Method:
    """Whitens the embeddings of each sub-batch, then brings the views of an image together."""

    def objective(e: Embeddings) -> LossTerms:
        return objectives.w_mse(e.z, sub_batch=sub_batch, shrinkage=shrinkage)

    return methods.Method(parts, models.mlp(parts.features, projector), objective)


@entry(
    family="covariance",
    paper="CorInfoMax (Ozsoy et al. 2022)",
    recipe=ASYMMETRIC | {"optimizer": "sgd", "lr": 0.25, "batch_size": 512, "weight_decay": 1e-4},
    formula=(
        "250 · MSE(z, z') − [log det(R + εI) + log det(R' + εI)]/D, where R is a view's running covariance and z has "
        "unit length"
    ),
    latex=(
        r"\mathcal{L} = \frac{\lambda}{N D} \left\lVert Z_1 - Z_2 \right\rVert_F^2 "
        r"- \frac{1}{D} \sum_{v=1}^{2} \log \det \left( R_v + \varepsilon I \right)"
    ),
    symbols=(
        "Z_v[N, D] are the embeddings of view v of N images, with rows of unit length, and R_v[D, D] is their running "
        "covariance matrix, which includes the batch. λ is `weight` and ε is `epsilon`. With V > 2 views, the first "
        "term is the mean over pairs of views, and the second is 2/V times the sum over views."
    ),
    source="the authors' command for CIFAR-10 (learning rate 0.5 at batch 512) and their augmentations, without "
    "their blur",
    state="running covariance and mean of each view's embeddings",
    memory="V·D² in float64",
    choose="For narrow embeddings in which every dimension must be used. The log determinant measures information.",
)
def corinfomax(
    parts: Parts,
    *,
    weight: Annotated[NonNegative, "weight λ of the squared distance between views"] = 250.0,
    covariance_momentum: Annotated[Probability, "fraction of the running covariance that a step keeps"] = 0.01,
    epsilon: Annotated[Positive, "ε, added to the eigenvalues of the running covariance"] = 1e-8,
    projector: Projector = (2048, 2048, 64),
) -> Method:
    """Makes the log determinant of the running covariances large and the distance between views small."""
    memory = models.RunningCovariance(parts.views, projector[-1], covariance_momentum)

    def objective(e: Embeddings) -> LossTerms:
        return objectives.corinfomax(
            e.z, memory.covariances, memory.means, momentum=covariance_momentum, weight=weight, epsilon=epsilon
        )

    def update_state(e: Embeddings, progress: Tensor) -> None:  # noqa: ARG001 — `UpdateState` passes the progress
        memory.update(e.z)

    network = nn.Sequential(models.mlp(parts.features, projector, norm=False), models.Unit())
    return methods.Method(parts, network, objective, memory=memory, update_state=update_state)
