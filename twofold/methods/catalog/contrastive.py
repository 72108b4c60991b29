"""Contrastive methods: images against images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from twofold.keys import Count, NonNegative, Positive
from twofold.methods.catalog.common import (
    MIDDLE,
    SOLO_LARS,
    SYMMETRIC,
    SYMMETRIC_WEAK,
    Projector,
    TeacherMomentum,
    Temperature,
    methods,
    models,
    objectives,
    own_function,
    torch,
)
from twofold.methods.registry import entry
from twofold.types import Embeddings, LossTerms

if TYPE_CHECKING:
    from torch import Tensor

    from twofold.methods import Method, Parts

# The α-CL paper, section 6: Adam with learning rate 0.01 at batch 128, not scaled. No weight decay, as in the authors'
# code: Adam divides the decay by the size of small gradients, and 1e-6 cost five points in 100 epochs on CIFAR-10.
ALPHA_CL = {"optimizer": "adam", "lr": 0.01, "lr_scaling": "none", "batch_size": 128, "weight_decay": 0.0}


@entry(
    family="contrastive",
    paper="SimCLR (Chen et al. 2020)",
    recipe=SOLO_LARS | SYMMETRIC | {"lr": 0.4, "weight_decay": 1e-4},
    continued=MIDDLE | {"freeze": 0.7, "encoder_lr": 3e-4, "epochs": 20},
    formula=(
        "log(1 + Σ_j exp((s_ij − s_ip)/τ)), the mean over anchors i and their positives p, with j over all rows of "
        "other images"
    ),
    latex=(
        r"\mathcal{L} = \frac{1}{R\,(V-1)} \sum_{i=1}^{R} \sum_{p \in \operatorname{pos}(i)} "
        r"\log \left( 1 + \sum_{j \in \operatorname{neg}(i)} e^{(s_{ij} - s_{ip})/\tau} \right)"
    ),
    symbols=(
        "Z has R = V·N rows, one for each of the V views of N images; s_ij is the cosine of rows i and j, and τ the "
        "temperature. pos(i) are the other views of row i's image, and neg(i) are the rows of all other images."
    ),
    source="solo-learn's simclr.yaml and augmentations/symmetric.yaml",
    state="none",
    memory="one (V·N)² matrix",
    choose="As the best-known baseline. It needs many negatives, so larger batches help.",
)
def simclr(parts: Parts, *, temperature: Temperature = 0.2, projector: Projector = (2048, 256)) -> Method:
    """Contrasts each image with all other images of the batch (NT-Xent)."""

    def objective(e: Embeddings) -> LossTerms:
        return objectives.info_nce(e.z, temperature)

    return methods.Method(parts, models.mlp(parts.features, projector), objective)


@entry(
    family="contrastive",
    paper="MoCo v2 (Chen et al. 2020)",
    recipe=SYMMETRIC_WEAK | {"optimizer": "sgd", "lr": 0.3, "weight_decay": 1e-4},
    formula=(
        "−log softmax of cos(z_v, t_w)/τ against all cos(z_v, q)/τ, the mean over ordered pairs of views v, w; t is "
        "the teacher's embedding, q are the queue's embeddings of other images"
    ),
    latex=(
        r"\mathcal{L} = -\frac{1}{N\,V\,(V-1)} \sum_{n=1}^{N} \sum_{v \ne w} "
        r"\log \frac{e^{\cos(z_{vn},\, t_{wn})/\tau}}"
        r"{e^{\cos(z_{vn},\, t_{wn})/\tau} + \sum_{q \in Q_n} e^{\cos(z_{vn},\, q)/\tau}}"
    ),
    symbols=(
        "z_vn is the embedding of view v of image n, for V views of N images; t_wn is the teacher's embedding of view "
        "w, without gradient. Q_n are the queue's embeddings of images other than n, and τ is the temperature."
    ),
    source=(
        "solo-learn's mocov2plus.yaml, with two differences: one queue replaces its two queues of 32768 (one for each "
        "view), and the teacher's momentum ends at 1 instead of 0.999"
    ),
    state="teacher, queue",
    memory="V·N·Q logits for a queue of Q embeddings, a second network and its forward pass",
    choose="For contrastive learning with many negatives and a small batch.",
)
def moco(
    parts: Parts,
    *,
    queue: Annotated[Count, "number of the teacher's embeddings to keep as negatives"] = 65536,
    temperature: Temperature = 0.2,
    teacher_momentum: TeacherMomentum = 0.99,
    projector: Projector = (2048, 256),
) -> Method:
    """Contrasts each image with a long queue of other images' embeddings, which a slow teacher computed.

    Queue entries that show the same image do not count as negatives. A small data set has many of them.
    """
    keys = models.Queue(queue, projector[-1])

    def objective(e: Embeddings) -> LossTerms:
        assert e.target is not None
        return objectives.moco(e.z, e.target, keys.rows, temperature, negatives=keys.others(e.index))

    def update_state(e: Embeddings, progress: Tensor) -> None:  # noqa: ARG001 — `UpdateState` passes the progress
        assert e.target is not None
        keys.update(e.target, e.index)

    network = models.mlp(parts.features, projector, norm=False)
    return methods.Method(
        parts,
        network,
        objective,
        teacher_momentum=teacher_momentum,
        memory=keys,
        update_state=update_state,
        multi_crop=True,
    )


@entry(
    family="contrastive",
    paper="α-CL (Tian 2022)",
    recipe=ALPHA_CL,
    formula=(
        "Σ_j sg(α_ij)(s_ij − s̄_i), the mean over anchors i; α comes from the distances D = 1 − s by a rule: direct "
        "softmax(−D^{p/2}/τ), entropy softmax(−D/τ), square, inverse or heuristic_inverse"
    ),
    latex=(
        r"\mathcal{L} = \frac{1}{R} \sum_{i=1}^{R} \sum_{j \in \operatorname{neg}(i)} "
        r"\operatorname{sg}(\alpha_{ij}) \left( s_{ij} - \bar{s}_i \right), \quad "
        r"\alpha_{ij} = \operatorname{softmax}_j \left( -D_{ij}^{p/2} / \tau \right), \quad D_{ij} = 1 - s_{ij}"
    ),
    symbols=(
        "Z has R = V·N rows, one for each of the V views of N images; s_ij is the cosine of rows i and j, and s̄_i "
        "the mean cosine of row i with the other views of its image. neg(i) are the rows of all other images, α_ij "
        "is the weight of a pair, and sg is the stop-gradient. The formula of α is that of the rule direct, with "
        "temperature τ and exponent p."
    ),
    source=(
        "the paper, section 6: Adam, lr 0.01, batch 128, τ 0.5, p 4. As in the authors' code, there is no weight "
        "decay. The projector's widths are Twofold's own"
    ),
    state="none",
    memory="three (V·N)² matrices; seven for square and inverse",
    choose="For contrastive learning with small batches. `rule` sets which negatives count most.",
)
def alpha_cl(
    parts: Parts,
    *,
    rule: Annotated[
        str,
        "rule that turns the distance of a pair into its weight: direct, entropy, square, inverse, heuristic_inverse, "
        "or your own function α(within, between), as FILE.py:FUNCTION or MODULE:FUNCTION",
    ] = "direct",
    temperature: Annotated[Positive | None, "temperature τ of the rule; none: 0.5, or 5 for square"] = None,
    exponent: Annotated[
        Positive | None,
        "exponent of the rules direct (p; none: 4) and heuristic_inverse (none: 2); other rules have no exponent",
    ] = None,
    gamma: Annotated[Positive | None, "γ of the rule inverse (none: 2); other rules have no γ"] = None,
    normalized: Annotated[
        bool | None,
        "whether the weights sum to 1 for each anchor, with the rule direct (none: true); other rules do not take "
        "this key",
    ] = None,
    through_importance: Annotated[
        bool, "backpropagate also through the weights; this is the negative control of the paper"
    ] = False,
    projector: Projector = (512, 128),
) -> Method:
    """Weights each pair of different images by a rule that depends on their distance.

    With a rule of your own, this is Definition 1 of the paper for any α: see `twofold.objectives.alpha_cl`.
    """
    given = {"temperature": temperature, "exponent": exponent, "gamma": gamma, "normalized": normalized}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    own = own_function.load_function(rule, "rule") if ":" in rule else None
    # This raises an error for a parameter that the rule lacks.
    if own is None:
        objectives.importance(torch.ones(1, 2), rule, **chosen)
    else:
        objectives.alpha_cl(torch.eye(3).expand(2, 3, 3), own, **chosen)

    def objective(e: Embeddings) -> LossTerms:
        return objectives.alpha_cl(e.z, own or rule, through_importance=through_importance, **chosen)

    return methods.Method(parts, models.mlp(parts.features, projector), objective)


@entry(
    family="contrastive",
    paper="α-CL (Tian 2022), Table 1",
    recipe=ALPHA_CL,
    name="contrastive",
    formula="φ(Σ_j ψ(d_i² − d_ij²)), the mean over anchors i; `family` chooses φ and ψ",
    latex=(
        r"\mathcal{L} = \frac{1}{R} \sum_{i=1}^{R} \varphi \left( "
        r"\sum_{j \in \operatorname{neg}(i)} \psi \left( d_i^2 - d_{ij}^2 \right) \right)"
    ),
    symbols=(
        "Z has R = V·N rows of unit length, one for each of the V views of N images. d_i² is half the squared distance "
        "of row i to the other view of its image, d_ij² that to row j, and neg(i) are the rows of all other images. "
        "φ and ψ belong to the `family`; infonce has φ(x) = τ log(ε + x) and ψ(x) = exp(x/τ). With more than two "
        "views, the loss is also a mean over the other views."
    ),
    source="as for alpha-cl. Margins that the paper does not state are Twofold's own",
    state="none",
    memory="one (V·N)² matrix; five for triplet, modified_triplet and linear",
    choose="To compare contrastive losses in one training loop.",
)
def contrastive_family(
    parts: Parts,
    *,
    family: Annotated[
        Literal["infonce", "mine", "triplet", "soft_triplet", "tuplet", "lifted", "modified_triplet", "linear"],
        "which loss of the family: the pair of functions φ and ψ",
    ] = "infonce",
    temperature: Annotated[
        Positive | None, "temperature τ of infonce and soft_triplet (none: 0.5); other losses have no temperature"
    ] = None,
    epsilon: Annotated[
        NonNegative | None,
        "ε of infonce (none: 1), or margin of triplet (none: 0.2), soft_triplet (none: 0) and lifted (none: 1); other "
        "losses have neither",
    ] = None,
    scale: Annotated[
        Positive | None, "factor c in the sigmoid of modified_triplet (none: 1); other losses have no such factor"
    ] = None,
    projector: Projector = (512, 128),
) -> Method:
    """Trains with any loss of the (φ, ψ) family, such as InfoNCE or the triplet loss."""
    given = {"temperature": temperature, "epsilon": epsilon, "scale": scale}
    member = objectives.family(family, **{name: value for name, value in given.items() if value is not None})

    def objective(e: Embeddings) -> LossTerms:
        return objectives.contrastive(e.z, member)

    few = "All pairs have the same weight, so the strongest direction dominates (α-CL, Theorem 3)."
    few_dimensions = few if family == "linear" else ""
    return methods.Method(parts, models.mlp(parts.features, projector), objective, few_dimensions=few_dimensions)


@entry(
    family="contrastive",
    paper="α-CL (Tian 2022), its quadratic loss",
    recipe=ALPHA_CL,
    formula="Σ_j (d_i² − d_ij²), the mean over anchors i",
    latex=(
        r"\mathcal{L} = \frac{1}{R} \sum_{i=1}^{R} \sum_{j \in \operatorname{neg}(i)} "
        r"\left( d_i^2 - d_{ij}^2 \right)"
    ),
    symbols=(
        "Z has R = V·N rows of unit length, one for each of the V views of N images. d_i² is half the squared distance "
        "of row i to the other view of its image, d_ij² that to row j, and neg(i) are the rows of all other images."
    ),
    source="as for alpha-cl",
    state="none",
    memory="five (V·N)² matrices",
    choose="As a negative control, as in the paper: its embeddings keep few dimensions.",
)
def quadratic(parts: Parts, *, projector: Projector = (512, 128)) -> Method:
    """Trains with the linear loss of the (φ, ψ) family, a baseline that gives all pairs the same weight."""
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
    formula="−2 E[z·z⁺] + E[(z·z⁻)²], where rows of Z longer than `radius` are scaled to that length",
    latex=(
        r"\mathcal{L} = -2\, \mathbb{E} \left[ z^\top z^+ \right] "
        r"+ \mathbb{E} \left[ \left( z^\top z^- \right)^2 \right]"
    ),
    symbols=(
        "z is an embedding of dimension D, z⁺ that of another view of the same image, and z⁻ that of any view of "
        "another image; E is the mean over the V views of the N images of a batch. Embeddings longer than `radius` are "
        "scaled to that length first."
    ),
    source=(
        "the authors' configuration for CIFAR-10 (spectral_resnet_mlp1000_norelu_cifar10_lr003_mu1): its learning rate "
        "is stated for batch 256 and scaled to 512, and its weight decay includes norms and biases"
    ),
    state="none",
    memory="the smaller of D² and (V·N)²",
    choose="For theory: the minimum of this loss is a factorisation of the augmentation graph.",
)
def spectral_contrastive(
    parts: Parts,
    *,
    radius: Annotated[Positive, "largest length of an embedding; longer ones are scaled down to it"] = 1.0,
    projector: Projector = (2048, 1000),
) -> Method:
    """Makes inner products of views of one image large, and squared inner products of different images small."""

    def objective(e: Embeddings) -> LossTerms:
        return objectives.spectral_contrastive(e.z, radius=radius)

    return methods.Method(parts, models.mlp(parts.features, projector, last_norm=True, last_scale=True), objective)
