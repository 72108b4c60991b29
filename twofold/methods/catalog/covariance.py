"""Covariance methods: dimensions against dimensions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from twofold.errors import TwofoldError
from twofold.keys import Count, NonNegative, Positive, Probability, Widths
from twofold.methods.catalog.lazy_modules import methods, models, nn, objectives
from twofold.methods.catalog.recipes import ASYMMETRIC, SOLO_LARS, STRONG_COLOUR
from twofold.methods.registry import entry
from twofold.types import Embeddings, LossTerms

if TYPE_CHECKING:
    from torch import Tensor

    from twofold.methods import Method, Parts


def _narrower(batch_size: int) -> dict[str, Any]:
    """FroSSL's distance counts D/N times, 4 in its recipe; small batches are better at 2, and collapse at 16."""
    return {} if batch_size >= 256 else {"projector": (2048, 2048, 2 * batch_size)}


@entry(
    family="covariance",
    paper="FroSSL (Skean et al. 2024)",
    recipe=SOLO_LARS | {"lr": 0.3, "weight_decay": 1e-6},
    formula="Σ_v log‖Z_vᵀZ_v‖²_F + (1/N) Σ_{v<w} ‖Z_v − Z_w‖²_F, columns of Z centred and of unit norm",
    source="the paper, section 6.1, and D of appendix B.1; augmentation: the run's defaults",
    state="none",
    memory="V·min(N, D)²",
    choose="First. Little to tune (its width follows the batch), quick early progress, any number of views.",
    few_images={"projector": (512, 512, 64)},  # narrower and quicker still, and no worse with so few
    by_batch=_narrower,
)
def frossl(
    parts: Parts,
    *,
    logarithm: bool = True,
    unit_trace: bool = False,
    projector: Widths = (2048, 2048, 1024),
) -> Method:
    """Frobenius norms of the views' correlation matrices, and their distance; no weight to tune."""
    if logarithm and unit_trace:
        raise TwofoldError("unit_trace=true changes nothing under the logarithm: it goes with logarithm=false")
    of_whole = partial(objectives.frossl, logarithm=logarithm, unit_trace=unit_trace)
    of_moments = partial(objectives.frossl_of_moments, logarithm=logarithm, unit_trace=unit_trace)
    return methods.Method(
        parts,
        models.mlp(parts.features, projector),
        lambda e: of_whole(e.z),
        of_moments=methods.OfMoments(objectives.moments, of_moments, parts.views),
    )


@entry(
    family="covariance",
    paper="VICReg (Bardes et al. 2022)",
    recipe=SOLO_LARS | {"lr": 0.3, "weight_decay": 1e-4, "augment.solarize": 0.1},
    formula=(
        "25 s(Z, Z') + 25 [v(Z) + v(Z')] + [c(Z) + c(Z')]: mean squared difference, hinge on deviations, "
        "squared covariances"
    ),
    source="solo vicreg.yaml, its augmentations too",
    state="none",
    memory="V·min(N, D)²",
    choose="The most accurate without labels after 30 epochs of CIFAR-10. Three terms, to be weighed one by one.",
)
def vicreg(
    parts: Parts,
    *,
    invariance: NonNegative = 25.0,
    variance: NonNegative = 25.0,
    covariance: NonNegative = 1.0,
    projector: Widths = (2048, 2048, 2048),
) -> Method:
    """Invariance, a hinge on each dimension's deviation, and small covariances."""

    weights: Any = {"invariance": invariance, "variance": variance, "covariance": covariance, "epsilon": 1e-4}

    def objective(e: Embeddings) -> LossTerms:
        return objectives.vicreg(e.z, **weights)

    of_moments = methods.OfMoments(objectives.moments, partial(objectives.vicreg_of_moments, **weights), parts.views)
    return methods.Method(parts, models.mlp(parts.features, projector), objective, of_moments=of_moments)


@entry(
    family="covariance",
    paper="Barlow Twins (Zbontar et al. 2021)",
    recipe=SOLO_LARS | ASYMMETRIC | {"lr": 0.3, "weight_decay": 1e-4},
    formula="Σ_i (1 − c_ii)² + λ Σ_{i≠j} c_ij², c the correlations between two views",
    source="solo barlow.yaml and its scale of 0.1, augmentations/asymmetric.yaml; λ 5e-3: the paper",
    state="none",
    memory="min(2N², D²) for each pair of views",
    choose="A covariance method with one weight; more views cost pairs of views.",
)
def barlow_twins(
    parts: Parts, *, weight: Positive = 5e-3, scale: Positive = 0.1, projector: Widths = (2048, 2048, 2048)
) -> Method:
    """The correlation matrix between two views should be the identity."""

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
    formula=(
        "2 − 2 cos(w_i, w_i'), w the embedding whitened by the Cholesky factor of its covariance over a sub-batch"
    ),
    source="solo wmse.yaml, its augmentations too",
    state="none",
    memory="V·D² for each sub-batch",
    choose="Small embeddings: a sub-batch must have more images than dimensions.",
)
def w_mse(
    parts: Parts, *, sub_batch: Count = 128, shrinkage: Probability = 0.0, projector: Widths = (1024, 64)
) -> Method:
    """The distance between views after each sub-batch is whitened."""

    def objective(e: Embeddings) -> LossTerms:
        return objectives.w_mse(e.z, sub_batch=sub_batch, shrinkage=shrinkage)

    return methods.Method(parts, models.mlp(parts.features, projector), objective)


@entry(
    family="covariance",
    paper="CorInfoMax (Ozsoy et al. 2022)",
    recipe=ASYMMETRIC | {"optimizer": "sgd", "lr": 0.25, "batch_size": 512, "weight_decay": 1e-4},
    formula=(
        "250 · MSE(z, z') − [log det(R + εI) + log det(R' + εI)]/D, R a view's running covariance, z of unit length"
    ),
    source="the authors' command for CIFAR-10 (learning rate 0.5 as used at batch 512) and their augmentations",
    state="running covariance and mean of each view",
    memory="V·D² in float64",
    choose="Information written as a log determinant; small embeddings, of which no dimension may be lost.",
)
def corinfomax(
    parts: Parts,
    *,
    weight: NonNegative = 250.0,
    covariance_momentum: Probability = 0.01,
    epsilon: Positive = 1e-8,
    projector: Widths = (2048, 2048, 64),
) -> Method:
    """The log determinant of running covariances is made large, the distance between views small."""
    memory = models.RunningCovariance(parts.views, projector[-1], covariance_momentum)

    def objective(e: Embeddings) -> LossTerms:
        return objectives.corinfomax(
            e.z, memory.covariances, memory.means, momentum=covariance_momentum, weight=weight, epsilon=epsilon
        )

    def remember(e: Embeddings, progress: Tensor) -> None:  # noqa: ARG001 — others need it
        memory.update(e.z)

    network = nn.Sequential(models.mlp(parts.features, projector, norm=False), models.Unit())
    return methods.Method(parts, network, objective, memory=memory, remember=remember)
