"""Assignment methods: images meet classes, which are the images themselves, prototypes, or labels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

from twofold.config import Head
from twofold.errors import TwofoldError
from twofold.keys import Bounds, Count, NonNegative, Positive, Probability, Widths
from twofold.methods.catalog.lazy_modules import methods, models, nn, objectives, relations, torch
from twofold.methods.catalog.recipes import ASYMMETRIC, SOLO_LARS, SYMMETRIC
from twofold.methods.registry import entry
from twofold.types import Embeddings, LossTerms

if TYPE_CHECKING:
    from torch import Tensor

    from twofold.methods import Method, Parts

DIET: dict[str, Any] = {
    "views": 1,
    "optimizer": "adamw",
    "lr": 1e-3,
    "weight_decay": 0.05,
    "augment.crop_scale": (0.08, 1.0),
    "augment.saturation": 0.4,
}

UNPRINTED = "warm-up, and norms and biases without weight decay, are as in all our runs"


@entry(
    family="assignment",
    paper="DIET (Ibrahim et al. 2024)",
    recipe=DIET,
    formula="cross entropy over all n images, label = the image's own number, label smoothing 0.8",
    source=f"S-DIET, appendix C, which follows DIET's authors; {UNPRINTED}",
    state="one row for each image, trained",
    memory="N·n logits, 3·n·K numbers for head and moments",
    choose="Small sets; one view a step. The head grows with the data.",
)
def diet(parts: Parts, *, label_smoothing: Probability = 0.8) -> Method:
    """Every image is its own class of a full linear head; no projector, one view."""
    head = nn.Linear(parts.features, len(parts.images), bias=False)
    own = parts.images.index

    def objective(e: Embeddings) -> LossTerms:
        row = torch.searchsorted(own.to(e.z.device), e.index)
        return objectives.batch_cross_entropy(
            e.z, head.weight, row.expand(len(e.z), -1), label_smoothing=label_smoothing
        )

    return methods.Method(parts, nn.Identity(), objective, head=head)


@entry(
    family="assignment",
    paper="S-DIET (memory-efficient DIET)",
    recipe=DIET,
    formula="cross entropy over the batch's images alone, label = the image itself, z of unit length, smoothing 0.8",
    source=(
        "the paper, section 5 and appendix C; not printed, and ours: the projector's widths, rows N(0, 1/D); "
        f"{UNPRINTED}"
    ),
    state="one row for each image with two moments, in memory or on disk",
    memory="N² logits; for rows and their gradient 2·N·D numbers, on CUDA 10·N·D, whatever the number of images",
    choose="Little memory on the device: one view a step, and a head that does not grow with the data.",
)
def s_diet(
    parts: Parts,
    *,
    label_smoothing: Probability = 0.8,
    normalize: Annotated[bool, "embeddings of unit length"] = True,
    correction: Annotated[bool, "estimate the cross entropy over all images, by sampled softmax"] = False,
    projector: Widths | None = (2048, 2048, 512),
    head: Head = Head(),
) -> Method:
    """Every image is its own class, told from the other images of the batch; rows wait in memory or on disk."""
    network = nn.Identity() if projector is None else models.mlp(parts.features, projector)
    rows = models.BatchRows(len(parts.images), parts.features if projector is None else projector[-1], head)
    scaled = models.Unit() if normalize else nn.Identity()
    population = len(parts.images) if correction else None

    def objective(e: Embeddings) -> LossTerms:
        weights, labels = rows(len(e.index))
        return objectives.batch_cross_entropy(
            scaled(e.z),
            weights,
            labels.expand(len(e.z), -1),
            label_smoothing=label_smoothing,
            population=population,
        )

    def keep_gradient(e: Embeddings, progress: Tensor) -> None:  # noqa: ARG001 — the signature is that of `remember`
        rows.keep_gradient()  # which the trainer takes to the rows, after the step

    return methods.Method(parts, network, objective, head=rows, remember=keep_gradient)


@entry(
    family="assignment",
    paper="Supervised learning: the ceiling",
    recipe={
        "views": 1,
        "optimizer": "sgd",
        "lr": 0.2,
        "batch_size": 128,
        "weight_decay": 5e-4,
        "warmup_epochs": 0,
        "augment.crop_scale": (1.0, 1.0),
        "augment.crop_ratio": (1.0, 1.0),
        "augment.shift": 0.125,
        "augment.jitter": 0.0,
        "augment.grayscale": 0.0,
    },
    formula="cross entropy with the labels",
    source=(
        "Zagoruyko and Komodakis 2016: SGD 0.9, learning rate 0.1 as used at batch 128, weight decay 5e-4, flips, "
        "shifts of 4 of 32 pixels; but the cosine of the other methods"
    ),
    state="none",
    memory="N·classes logits",
    choose="To know what labels would give. Needs them.",
)
def supervised(parts: Parts, *, label_smoothing: Probability = 0.0) -> Method:
    """A linear classifier of the labels on the features, trained with the network: what the others are measured by."""
    if parts.images.labels is None:
        raise TwofoldError("supervised needs labelled images, and these have none: choose another method")
    if bool((parts.images.labels < 0).any()):
        raise TwofoldError("supervised needs a label for every image, and some have none: choose another method")
    classes = int(parts.images.labels.max()) + 1
    head = nn.Linear(parts.features, classes, bias=False)
    labels = relations.looked_up(parts.images.labels, parts.images)

    def objective(e: Embeddings) -> LossTerms:
        return objectives.batch_cross_entropy(
            e.z, head.weight, labels(e.index).expand(len(e.z), -1), label_smoothing=label_smoothing
        )

    return methods.Method(
        parts,
        nn.Identity(),
        objective,
        head=head,
        few_dimensions="Labels ask for no more dimensions than there are classes.",
    )


@entry(
    family="assignment",
    paper="SwAV (Caron et al. 2020)",
    recipe=SOLO_LARS | SYMMETRIC | {"lr": 0.6, "weight_decay": 1e-6},
    formula=(
        "−Σ_p q_v log softmax(cos(z_w, c_p)/τ), c the prototypes, q_v the other view's codes: softmax(cos/ε) made to "
        "use all prototypes alike by Sinkhorn–Knopp; the mean over ordered pairs of views"
    ),
    source=(
        "solo swav.yaml, augmentations/symmetric.yaml; one queue for all views; lengths of prototypes are not learnt, "
        "as in the paper"
    ),
    state="queue (if any), part of the run done",
    memory="V·(N + Q)·P codes for P prototypes and a queue of Q",
    choose="Clusters instead of pairs. `queue=0` where the batch is larger than the number of prototypes; "
    "`augment.local_views=6` for multi-crop.",
)
def swav(
    parts: Parts,
    *,
    prototypes: Count = 3000,
    temperature: Positive = 0.1,
    epsilon: Positive = 0.05,
    iterations: Count = 3,
    queue: Annotated[int, Bounds(0), "embeddings of former steps that take part in the assignment; 0: none"] = 3840,
    queue_from_epoch: Annotated[NonNegative, "the queue takes part from here on"] = 50.0,
    frozen_epochs: Annotated[NonNegative, "epochs in which the prototypes stay as they are"] = 2.0,
    projector: Widths = (2048, 128),
) -> Method:
    """Views are assigned to prototypes, all of them used alike, and each view predicts the other's assignment."""
    head = models.Prototypes(projector[-1], prototypes)
    progress = models.Progress(parts.epochs)
    former = models.Queue(queue, projector[-1]) if queue else None

    def objective(e: Embeddings) -> LossTerms:
        return objectives.swav(
            head(e.z, progress.epochs < frozen_epochs),
            None if former is None else head(former.rows),
            None if former is None else (former.filled & (progress.epochs >= queue_from_epoch)).float(),
            targets=parts.views,
            temperature=temperature,
            epsilon=epsilon,
            iterations=iterations,
        )

    def remember(e: Embeddings, done: Tensor) -> None:
        progress.update(done)
        if former is not None:
            former.update(e.z[: parts.views], e.index)

    memory = nn.ModuleDict({"progress": progress} | ({} if former is None else {"queue": former}))
    return methods.Method(
        parts,
        models.mlp(parts.features, projector),
        objective,
        head=head,
        memory=memory,
        remember=remember,
        multi_crop=True,
    )


@entry(
    family="assignment",
    paper="DINO (Caron et al. 2021)",
    recipe=SOLO_LARS | ASYMMETRIC | {"lr": 0.3, "weight_decay": 1e-6},
    formula=(
        "−Σ_p softmax((s'_p(t_v) − m_p)/τ) log softmax(s_p(z_w)/0.1), s cosines with prototypes, s' and t the "
        "teacher's, m the running mean of s', τ from 0.04 to 0.07; the mean over ordered pairs of views"
    ),
    source="solo dino.yaml, augmentations/asymmetric.yaml, and the defaults of its code",
    state="teacher, its prototypes, centre, part of the run done",
    memory="2·V·N·P scores, a second network and its forward pass",
    choose="The method behind the well-known vision transformers; slow to start, so for long runs: with less than some "
    "hundred epochs `teacher_momentum=0.99`. `augment.local_views=6 augment.crop_scale=0.4,1` for multi-crop.",
)
def dino(
    parts: Parts,
    *,
    prototypes: Count = 4096,
    temperature: Positive = 0.1,
    target_temperature: Positive = 0.07,
    first_target_temperature: Annotated[Positive, "where it begins: soft targets at first end in a collapse"] = 0.04,
    rising_epochs: Annotated[Positive, "epochs in which the targets' temperature rises"] = 50.0,
    centre_momentum: Probability = 0.9,
    teacher_momentum: Probability = 0.9995,
    frozen_epochs: Annotated[NonNegative, "epochs in which the prototypes stay as they are"] = 1.0,
    projector: Widths = (2048, 2048, 256),
) -> Method:
    """A slow teacher's sharpened and centred assignments to prototypes are predicted from other views."""
    head = models.Prototypes(projector[-1], prototypes)
    teacher_head, centre = models.Teacher(head), models.Centre(prototypes, centre_momentum)
    progress = models.Progress(parts.epochs)
    rise = target_temperature - first_target_temperature

    def objective(e: Embeddings) -> LossTerms:
        return objectives.dino(
            head(e.z, progress.epochs < frozen_epochs),
            teacher_head(e.target),
            centre.mean,
            temperature=temperature,
            target_temperature=first_target_temperature + rise * (progress.epochs / rising_epochs).clamp(max=1),
        )

    def remember(e: Embeddings, done: Tensor) -> None:
        centre.update(teacher_head(e.target))
        teacher_head.update(head.parameters(), models.rising_momentum(teacher_momentum, done))
        progress.update(done)

    network = models.mlp(parts.features, projector, norm=False, activation=nn.GELU).apply(models.small_weights)
    return methods.Method(
        parts,
        network,
        objective,
        head=head,
        teacher_momentum=teacher_momentum,
        memory=nn.ModuleDict({"head": teacher_head, "centre": centre, "progress": progress}),
        remember=remember,
        multi_crop=True,
        guess=math.log(prototypes),
    )
