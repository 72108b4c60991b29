"""Assignment methods: images are assigned to classes, which are the images themselves, prototypes, or labels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from twofold.config import Head
from twofold.errors import TwofoldError
from twofold.keys import Bounds, Count, NonNegative, Positive, Probability
from twofold.methods.catalog.common import (
    ASYMMETRIC,
    SOLO_LARS,
    SYMMETRIC,
    FrozenEpochs,
    LabelSmoothing,
    Normalize,
    OptionalProjector,
    Projector,
    TeacherMomentum,
    Temperature,
    methods,
    models,
    nn,
    objectives,
    relations,
    torch,
)
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

UNSTATED = "Twofold's general defaults: the warm-up, and no weight decay for norms and biases"


@entry(
    family="assignment",
    paper="DIET (Ibrahim et al. 2024)",
    recipe=DIET,
    formula="cross entropy over all n images, where the class of an image is the image itself; label smoothing 0.8",
    latex=(
        r"\mathcal{L} = -\frac{1}{N} \sum_{i=1}^{N} \sum_{k=1}^{n} y_{ik} "
        r"\log \frac{e^{w_k^\top h_i}}{\sum_{l=1}^{n} e^{w_l^\top h_i}}, \quad "
        r"y_{ik} = (1 - s)\, \mathbf{1}_{[k = i]} + \frac{s}{n}"
    ),
    symbols=(
        "h_i are the features of image i (or its embedding, with a projector), for N images in a batch, and w_k is the "
        "classifier row of image k, for n training images. y_ik is the target, and s is `label_smoothing`."
    ),
    source=f"the S-DIET paper, appendix C, which follows DIET's authors. {UNSTATED}",
    state="one trained classifier row for each image",
    memory="N·n logits, and 3·n·K numbers for the classifier and the optimizer's moments",
    choose="For small data sets. It needs one view per step, but the classifier grows with the data.",
)
def diet(
    parts: Parts,
    *,
    label_smoothing: LabelSmoothing = 0.8,
    normalize: Normalize = False,
    projector: OptionalProjector = None,
) -> Method:
    """Makes every image its own class of one linear classifier; uses one view and no projector."""

    def loss(z: Tensor, rows: Tensor, labels: Tensor) -> LossTerms:
        return objectives.batch_cross_entropy(z, rows, labels, label_smoothing=label_smoothing)

    return with_full_classifier(parts, loss, normalize, projector)


def with_full_classifier(
    parts: Parts,
    loss: Callable[[Tensor, Tensor, Tensor], LossTerms],
    normalize: bool,
    projector: tuple[int, ...] | None,
    *,
    zero_rows: bool = False,
) -> Method:
    """A method with `loss(embeddings, rows, labels)` over a classifier with a row for each training image."""
    network = nn.Identity() if projector is None else models.mlp(parts.features, projector)
    head = nn.Linear(parts.features if projector is None else projector[-1], len(parts.images), bias=False)
    if zero_rows:  # random rows are wrong by far more than 1 under the squared error, and the encoder would follow them
        nn.init.zeros_(head.weight)
    scaled = models.Unit() if normalize else nn.Identity()
    own = parts.images.index

    def objective(e: Embeddings) -> LossTerms:
        row = torch.searchsorted(own.to(e.z.device), e.index)
        return loss(scaled(e.z), head.weight, row.expand(len(e.z), -1))

    return methods.Method(parts, network, objective, head=head)


@entry(
    family="assignment",
    paper="DIET with MSE (S-DIET, section 4)",
    recipe=DIET,
    formula="½‖W h − e_i‖², where the class of an image i is the image itself and e_i is its one-hot vector",
    latex=r"\mathcal{L} = \frac{1}{2N} \sum_{i=1}^{N} \left\lVert W h_i - e_i \right\rVert^2",
    symbols=(
        "h_i are the features of image i (or its embedding, with a projector), for N images in a batch. W has one row "
        "for each of the n training images, and e_i is the one-hot vector of image i. With `normalize=true`, h_i is "
        "scaled to unit length first."
    ),
    source=(
        "as for diet, but the rows of the classifier start at zero; the paper trains only linear networks with this "
        f"loss. {UNSTATED}"
    ),
    state="one trained classifier row for each image",
    memory="N·n outputs, and 3·n·K numbers for the classifier and the optimizer's moments",
    choose="To study theory: with a linear encoder, its minima are those of the spectral contrastive loss.",
)
def mse_diet(parts: Parts, *, normalize: Normalize = False, projector: OptionalProjector = None) -> Method:
    """DIET with the squared error instead of the cross entropy."""
    return with_full_classifier(parts, objectives.squared_error, normalize, projector, zero_rows=True)


@entry(
    family="assignment",
    paper="S-DIET (memory-efficient DIET)",
    recipe=DIET,
    formula=(
        "cross entropy over the images of the batch, where the class of an image is the image itself; z has unit "
        "length; label smoothing 0.8"
    ),
    latex=(
        r"\mathcal{L} = -\frac{1}{N} \sum_{i=1}^{N} \sum_{k=1}^{N} y_{ik} "
        r"\log \frac{e^{w_k^\top z_i}}{\sum_{l=1}^{N} e^{w_l^\top z_i}}, \quad "
        r"y_{ik} = (1 - s)\, \mathbf{1}_{[k = i]} + \frac{s}{N}, \quad \lVert z_i \rVert = 1"
    ),
    symbols=(
        "z_i is the embedding of image i, scaled to unit length, for N images in a batch, and w_k is the classifier "
        "row of image k. The loss uses only the rows of the batch. y_ik is the target, and s is `label_smoothing`."
    ),
    source=(
        "the paper, section 5 and appendix C. Twofold's own choices, because the paper does not state them: the "
        f"projector's widths, and initial rows from N(0, 1/D). {UNSTATED}"
    ),
    state="one classifier row for each image with the optimizer's two moments, in memory or on disk",
    memory="N² logits, and 2·N·D numbers for rows and their gradient (10·N·D on CUDA), for any number of images",
    choose="When GPU memory is short: it needs one view per step, and its memory does not grow with the data.",
)
def s_diet(
    parts: Parts,
    *,
    label_smoothing: LabelSmoothing = 0.8,
    normalize: Normalize = True,
    correction: Annotated[bool, "estimate the cross entropy over all images by sampled softmax"] = False,
    projector: OptionalProjector = (2048, 2048, 512),
    head: Head = Head(),
) -> Method:
    """Makes every image its own class among the images of the batch; keeps classifier rows in memory or on disk."""
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

    def keep_gradient(e: Embeddings, progress: Tensor) -> None:  # noqa: ARG001 — `UpdateState` passes the progress
        rows.keep_gradient()  # the trainer applies it to the stored rows after the step

    return methods.Method(parts, network, objective, head=rows, update_state=keep_gradient)


@entry(
    family="assignment",
    paper="Supervised learning, as an upper bound",
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
    latex=(
        r"\mathcal{L} = -\frac{1}{N} \sum_{i=1}^{N} "
        r"\log \frac{e^{w_{y_i}^\top h_i}}{\sum_{c=1}^{C} e^{w_c^\top h_i}}"
    ),
    symbols=(
        "h_i are the features of image i and y_i its label, for N images in a batch; w_c is the classifier row of "
        "class c, for C classes."
    ),
    source=(
        "Zagoruyko and Komodakis 2016: SGD with momentum 0.9, learning rate 0.1 at batch 128, weight decay 5e-4, "
        "flips, and shifts of 4 of 32 pixels; the schedule is the cosine of the other methods"
    ),
    state="none",
    memory="N·C logits for C classes",
    choose="To see which accuracy training with labels reaches. It needs a label for every image.",
    has_short_recipe=False,
)
def supervised(parts: Parts, *, label_smoothing: LabelSmoothing = 0.0) -> Method:
    """Trains the encoder and a linear classifier with labels, as a reference for the accuracy of other methods."""
    if parts.images.labels is None:
        raise TwofoldError("supervised needs labels, and these images have none: choose another method")
    if bool((parts.images.labels < 0).any()):
        raise TwofoldError("supervised needs a label for every image, and some images have none: choose another method")
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
        classifies=True,
        few_dimensions="Training with labels needs no more dimensions than there are classes.",
    )


@entry(
    family="assignment",
    paper="SwAV (Caron et al. 2020)",
    recipe=SOLO_LARS | SYMMETRIC | {"lr": 0.6, "weight_decay": 1e-6},
    formula=(
        "−Σ_p q_wp log softmax_p(cos(z_v, c_p)/τ), the mean over ordered pairs of views v, w; c_p are the prototypes, "
        "and the codes q are softmax(cos/ε), balanced by Sinkhorn–Knopp so that all prototypes are used equally"
    ),
    latex=(
        r"\mathcal{L} = -\frac{1}{N\,V\,(V-1)} \sum_{n=1}^{N} \sum_{v \ne w} \sum_{p=1}^{P} q_{wnp} "
        r"\log \frac{e^{\cos(z_{vn},\, c_p)/\tau}}{\sum_{r=1}^{P} e^{\cos(z_{vn},\, c_r)/\tau}}, \quad "
        r"q_w = \operatorname{Sinkhorn} \left( \frac{\cos(z_w,\, c)}{\varepsilon} \right)"
    ),
    symbols=(
        "z_vn is the embedding of view v of image n, for V views of N images, and c_p is one of P prototypes. The "
        "code q_wnp is the fraction of image n that is assigned to prototype p in view w, without gradient; "
        "Sinkhorn–Knopp balances the codes so that all prototypes are used equally. τ is `temperature` and ε is "
        "`epsilon`."
    ),
    source=(
        "solo-learn's swav.yaml and augmentations/symmetric.yaml, with one queue for all views; the lengths of the "
        "prototypes are not learned, as in the paper"
    ),
    state="queue (if any), progress of the run",
    memory="V·(N + Q)·P codes for P prototypes and a queue of Q",
    choose="To cluster images instead of comparing pairs. Set `queue=0` if the batch is larger than the number of "
    "prototypes, and `augment.local_views=6` for multi-crop.",
)
def swav(
    parts: Parts,
    *,
    prototypes: Annotated[Count, "number of prototypes P"] = 3000,
    temperature: Temperature = 0.1,
    epsilon: Annotated[Positive, "temperature ε of the codes; smaller values give harder assignments"] = 0.05,
    iterations: Annotated[Count, "iterations of Sinkhorn–Knopp"] = 3,
    queue: Annotated[int, Bounds(0), "number of earlier embeddings that help to balance the codes; 0: none"] = 3840,
    queue_from_epoch: Annotated[NonNegative, "first epoch that uses the queue"] = 50.0,
    frozen_epochs: FrozenEpochs = 2.0,
    projector: Projector = (2048, 128),
) -> Method:
    """Assigns views to equally used prototypes; each view predicts the assignments of the other views."""
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

    def update_state(e: Embeddings, done: Tensor) -> None:
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
        update_state=update_state,
        multi_crop=True,
    )


@entry(
    family="assignment",
    paper="DINO (Caron et al. 2021)",
    recipe=SOLO_LARS | ASYMMETRIC | {"lr": 0.3, "weight_decay": 1e-6},
    formula=(
        "−Σ_p softmax_p((s'_p(t_w) − m_p)/τ_t) log softmax_p(s_p(z_v)/0.1), the mean over ordered pairs of views v, w; "
        "s are cosines with the prototypes, s' and t are the teacher's, m is the running mean of s', and τ_t rises "
        "from 0.04 to 0.07"
    ),
    latex=(
        r"\mathcal{L} = -\frac{1}{N\,V\,(V-1)} \sum_{n=1}^{N} \sum_{v \ne w} \sum_{p=1}^{P} q_{wnp} "
        r"\log \frac{e^{s_{vnp}/\tau}}{\sum_{r=1}^{P} e^{s_{vnr}/\tau}}, \quad "
        r"q_{wnp} = \operatorname{softmax}_p \left( \frac{t_{wnp} - m_p}{\tau_t} \right)"
    ),
    symbols=(
        "s_vnp is the cosine of the embedding of view v of image n and prototype p, for V views of N images and P "
        "prototypes. t_wnp is the same for the teacher and its prototypes, without gradient. m_p is the running mean "
        "of t (the centre), τ is `temperature`, and τ_t rises from `first_target_temperature` to "
        "`target_temperature`."
    ),
    source="solo-learn's dino.yaml and augmentations/asymmetric.yaml, and the defaults of its code",
    state="teacher, its prototypes, centre, progress of the run",
    memory="2·V·N·P scores, a second network and its forward pass",
    choose="It is widely used with vision transformers. It starts slowly, so it suits long runs; below a few hundred "
    "epochs, set `teacher_momentum=0.99`. For multi-crop, set `augment.local_views=6 augment.crop_scale=0.4,1`.",
)
def dino(
    parts: Parts,
    *,
    prototypes: Annotated[Count, "number of prototypes P"] = 4096,
    temperature: Temperature = 0.1,
    target_temperature: Annotated[Positive, "final temperature of the targets"] = 0.07,
    first_target_temperature: Annotated[
        Positive, "temperature of the targets at the start of the run; a high value leads to collapse"
    ] = 0.04,
    rising_epochs: Annotated[Positive, "number of epochs during which the temperature of the targets rises"] = 50.0,
    centre_momentum: Annotated[
        Probability, "fraction of the running mean of scores (the centre) that a step keeps"
    ] = 0.9,
    teacher_momentum: TeacherMomentum = 0.9995,
    frozen_epochs: FrozenEpochs = 1.0,
    projector: Projector = (2048, 2048, 256),
) -> Method:
    """Predicts, from one view, a slow teacher's sharpened and centred prototype scores of the other views."""
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

    def update_state(e: Embeddings, done: Tensor) -> None:
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
        update_state=update_state,
        multi_crop=True,
        guess=math.log(prototypes),
    )
