"""Contrastive methods: images against images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from twofold.keys import Count, NonNegative, Positive, Probability, Widths
from twofold.methods.catalog.lazy_modules import methods, models, objectives, torch
from twofold.methods.catalog.recipes import SOLO_LARS, SYMMETRIC, SYMMETRIC_WEAK
from twofold.methods.registry import entry
from twofold.types import Embeddings, LossTerms

if TYPE_CHECKING:
    from torch import Tensor

    from twofold.methods import Method, Parts

# α-CL section 6: Adam, learning rate 0.01 at batch 128, no rescaling. No weight decay, as in the authors' code: Adam
# divides it by the size of small gradients, and 1e-6 cost five points in 100 epochs of CIFAR-10.
ALPHA_CL = {"optimizer": "adam", "lr": 0.01, "lr_scaling": "none", "batch_size": 128, "weight_decay": 0.0}


@entry(
    family="contrastive",
    paper="SimCLR (Chen et al. 2020)",
    recipe=SOLO_LARS | SYMMETRIC | {"lr": 0.4, "weight_decay": 1e-4},
    formula=(
        "log(1 + Σ_j exp((s_ij − s_i+)/τ)), s the cosine, j over all rows of other images; the mean over "
        "anchors and positives"
    ),
    source="solo simclr.yaml, augmentations/symmetric.yaml",
    state="none",
    memory="one (V·N)² matrix",
    choose="The baseline that everybody knows. Wants many negatives: larger batches help.",
)
def simclr(parts: Parts, *, temperature: Positive = 0.2, projector: Widths = (2048, 256)) -> Method:
    """NT-Xent: each image against all others of the batch."""

    def objective(e: Embeddings) -> LossTerms:
        return objectives.info_nce(e.z, temperature)

    return methods.Method(parts, models.mlp(parts.features, projector), objective)


@entry(
    family="contrastive",
    paper="MoCo v2 (Chen et al. 2020)",
    recipe=SYMMETRIC_WEAK | {"optimizer": "sgd", "lr": 0.3, "weight_decay": 1e-4},
    formula=(
        "−log softmax of cos(z_v, t_w)/τ against cos(z_v, q)/τ, t the teacher's embedding of the other view, q the "
        "queue's of other images; the mean over ordered pairs of views"
    ),
    source=(
        "solo mocov2plus.yaml; its two queues of 32768, one for each view, are one here; its teacher's momentum ends "
        "at 0.999, ours at 1"
    ),
    state="teacher, queue",
    memory="V·N·Q logits for a queue of Q, a second network and its forward pass",
    choose="Contrastive learning with many negatives at a small batch.",
)
def moco(
    parts: Parts,
    *,
    queue: Count = 65536,
    temperature: Positive = 0.2,
    teacher_momentum: Probability = 0.99,
    projector: Widths = (2048, 256),
) -> Method:
    """Each image against a long queue of a slow teacher's embeddings of other images.

    Entries of the queue that show the same image do not count: in a small set there are many.
    """
    keys = models.Queue(queue, projector[-1])

    def objective(e: Embeddings) -> LossTerms:
        assert e.target is not None
        return objectives.moco(e.z, e.target, keys.rows, temperature, negatives=keys.others(e.index))

    def remember(e: Embeddings, progress: Tensor) -> None:  # noqa: ARG001 — others need it
        assert e.target is not None
        keys.update(e.target, e.index)

    network = models.mlp(parts.features, projector, norm=False)
    return methods.Method(
        parts,
        network,
        objective,
        teacher_momentum=teacher_momentum,
        memory=keys,
        remember=remember,
        multi_crop=True,
    )


@entry(
    family="contrastive",
    paper="α-CL (Tian 2022)",
    recipe=ALPHA_CL,
    formula=(
        "Σ_j sg(α_ij)(cos_ij − cos_ii'), α by a rule of the distances D = 1 − cos: direct "
        "softmax(−D^{p/2}/τ), entropy softmax(−D/τ), square, inverse; the mean over anchors"
    ),
    source="Adam, lr 0.01, batch 128, τ 0.5, p 4: the paper, section 6; no weight decay: its code; widths are ours",
    state="none",
    memory="three (V·N)² matrices; seven for square and inverse",
    choose="Contrastive learning at small batches; `rule` says which negatives count.",
)
def alpha_cl(
    parts: Parts,
    *,
    rule: Literal["direct", "entropy", "square", "inverse", "heuristic_inverse"] = "direct",
    temperature: Positive | None = None,
    exponent: Positive | None = None,
    gamma: Positive | None = None,
    normalized: bool | None = None,
    through_importance: bool = False,
    projector: Widths = (512, 128),
) -> Method:
    """Pairs weighed by a chosen rule of their distances; `none` leaves a rule's own parameter as it is."""
    given = {"temperature": temperature, "exponent": exponent, "gamma": gamma, "normalized": normalized}
    chosen = {name: value for name, value in given.items() if value is not None}
    objectives.importance(torch.ones(1, 2), rule, **chosen)  # refuses a parameter that the rule does not have

    def objective(e: Embeddings) -> LossTerms:
        return objectives.alpha_cl(e.z, rule, through_importance=through_importance, **chosen)

    return methods.Method(parts, models.mlp(parts.features, projector), objective)


@entry(
    family="contrastive",
    paper="α-CL (Tian 2022), Table 1",
    recipe=ALPHA_CL,
    name="contrastive",
    formula="φ(Σ_j ψ(d_i² − d_ij²)), the mean over anchors; `family` names φ and ψ",
    source="as alpha-cl; margins without a published value are ours",
    state="none",
    memory="one (V·N)² matrix; five for triplet, modified_triplet and linear",
    choose="Comparing contrastive losses under one loop.",
)
def contrastive_family(
    parts: Parts,
    *,
    family: Literal[
        "infonce", "mine", "triplet", "soft_triplet", "tuplet", "lifted", "modified_triplet", "linear"
    ] = "infonce",
    temperature: Positive | None = None,
    epsilon: NonNegative | None = None,
    scale: Positive | None = None,
    projector: Widths = (512, 128),
) -> Method:
    """Any member of the (φ, ψ) family of losses; `none` leaves a member's own parameter as it is."""
    given = {"temperature": temperature, "epsilon": epsilon, "scale": scale}
    member = objectives.family(family, **{name: value for name, value in given.items() if value is not None})

    def objective(e: Embeddings) -> LossTerms:
        return objectives.contrastive(e.z, member)

    few = "All pairs weigh alike, and the strongest direction takes all (Theorem 3 of α-CL)."
    few_dimensions = few if family == "linear" else ""
    return methods.Method(parts, models.mlp(parts.features, projector), objective, few_dimensions=few_dimensions)


@entry(
    family="contrastive",
    paper="α-CL (Tian 2022), its quadratic loss",
    recipe=ALPHA_CL,
    formula="Σ_j (d_i² − d_ij²), the mean over anchors",
    source="as alpha-cl",
    state="none",
    memory="five (V·N)² matrices",
    choose="As the negative control that it is in the paper: it keeps few dimensions.",
)
def quadratic(parts: Parts, *, projector: Widths = (512, 128)) -> Method:
    """The linear member of the family, which weighs all pairs alike: a baseline."""
    return contrastive_family(parts, family="linear", projector=projector)


@entry(
    family="contrastive",
    paper="Spectral contrastive (HaoChen et al. 2021)",
    recipe={
        "optimizer": "sgd",
        "lr": 0.03,
        "batch_size": 512,
        "weight_decay": 5e-4,
        "decay_all": True,
        "augment.saturation": 0.4,
    },
    formula="−2 E[z·z⁺] + E[(z·z⁻)²], rows of z longer than 1 cut to 1",
    source=(
        "the authors' configuration for CIFAR-10 (spectral_resnet_mlp1000_norelu_cifar10_lr003_mu1), whose learning "
        "rate is for batch 256 and scaled to 512, and whose weight decay is on norms and biases too"
    ),
    state="none",
    memory="the smaller of D² and (V·N)²",
    choose="Where the theory matters: its minimiser factorises the augmentation graph.",
)
def spectral_contrastive(parts: Parts, *, radius: Positive = 1.0, projector: Widths = (2048, 1000)) -> Method:
    """Squared similarities of different images against similarities of views: factorises the augmentation graph."""

    def objective(e: Embeddings) -> LossTerms:
        return objectives.spectral_contrastive(e.z, radius=radius)

    return methods.Method(parts, models.mlp(parts.features, projector, last_norm=True, last_scale=True), objective)
