"""Contrastive methods: images against images."""

from typing import Literal

import torch

from twofold import objectives
from twofold.config import NonNegative, Positive, Widths
from twofold.methods.catalog.recipes import SOLO_LARS, STRONG_COLOUR
from twofold.methods.method import Method, Parts
from twofold.methods.registry import entry
from twofold.models import mlp
from twofold.types import Embeddings, LossTerms

# α-CL section 6: Adam, learning rate 0.01 at batch 128, no rescaling.
ALPHA_CL = {"optimizer": "adam", "lr": 0.01, "lr_scaling": "none", "batch_size": 128, "weight_decay": 1e-6}


@entry(
    family="contrastive",
    paper="SimCLR (Chen et al. 2020)",
    recipe=SOLO_LARS | STRONG_COLOUR | {"lr": 0.4, "weight_decay": 1e-4},
    formula=(
        "log(1 + Σ_j exp((s_ij − s_i+)/τ)), s the cosine, j over all rows of other images; the mean over "
        "anchors and positives"
    ),
    source="solo simclr.yaml; jitter of augmentations/symmetric.yaml",
    state="none",
    memory="one (V·N)² matrix",
    choose="The baseline that everybody knows. Wants many negatives: larger batches help.",
)
def simclr(parts: Parts, *, temperature: Positive = 0.2, projector: Widths = (2048, 256)) -> Method:
    """NT-Xent: each image against all others of the batch."""

    def objective(e: Embeddings) -> LossTerms:
        return objectives.info_nce(e.z, temperature)

    return Method(parts, mlp(parts.features, projector), objective)


@entry(
    family="contrastive",
    paper="α-CL (Tian 2022)",
    recipe=ALPHA_CL,
    formula=(
        "Σ_j sg(α_ij)(cos_ij − cos_ii'), α by a rule of the distances D = 1 − cos: direct "
        "softmax(−D^{p/2}/τ), entropy softmax(−D/τ), square, inverse; the mean over anchors"
    ),
    source="Adam, learning rate 0.01, batch 128, τ 0.5, p 4: the paper, section 6; weight decay and widths are ours",
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

    return Method(parts, mlp(parts.features, projector), objective)


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

    return Method(parts, mlp(parts.features, projector), objective)


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
    recipe={"optimizer": "sgd", "lr": 0.03, "weight_decay": 5e-4},
    formula="−2 E[z·z⁺] + E[(z·z⁻)²]",
    source="SGD 0.9 and weight decay 5e-4: the paper; learning rate and widths are ours",
    state="none",
    memory="the smaller of D² and (V·N)²",
    choose="Where the theory matters: its minimiser factorises the augmentation graph.",
)
def spectral_contrastive(parts: Parts, *, projector: Widths = (2048, 1024)) -> Method:
    """Squared similarities of different images against similarities of views: factorises the augmentation graph."""
    return Method(parts, mlp(parts.features, projector), lambda e: objectives.spectral_contrastive(e.z))
