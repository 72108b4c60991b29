"""Every named method: one function that puts parts together and states its defaults.

A function's keyword parameters are keys on the command line; `recipe` holds what the method asks of the rest of the
run. Learning rates are as used at batch 256. "solo" is solo-learn's CIFAR recipe (scripts/pretrain/cifar, 2023); blur
is left out throughout, as SPEC.md section 5 asks for 32-pixel images.
"""

import torch
from torch import nn

from twofold import objectives
from twofold.config import Count, Positive, Probability, Widths
from twofold.methods.method import Method
from twofold.methods.registry import entry
from twofold.models import mlp
from twofold.types import Embeddings, LossTerms

# solo: clip_lr, eta 0.02 and no adaptation of biases and norms are how our LARS works.
SOLO_LARS = {"optimizer": "lars", "lars_eta": 0.02, "warmup_epochs": 10, "batch_size": 256}


@entry(
    family="contrastive",
    paper="SimCLR (Chen et al. 2020)",
    recipe=SOLO_LARS  # solo simclr.yaml: lr 0.4, weight decay 1e-4, jitter of augmentations/symmetric.yaml
    | {
        "lr": 0.4,
        "weight_decay": 1e-4,
        "augment.brightness": 0.8,
        "augment.contrast": 0.8,
        "augment.saturation": 0.8,
        "augment.hue": 0.2,
    },
)
def simclr(
    encoder: nn.Module, features: int, *, temperature: Positive = 0.2, projector: Widths = (2048, 256)
) -> Method:
    """NT-Xent: each image against all others of the batch."""

    def objective(e: Embeddings) -> LossTerms:
        return objectives.info_nce(e.z, temperature)

    return Method(encoder, mlp(features, projector), objective)


@entry(
    family="covariance",
    paper="FroSSL (Skean et al. 2024)",
    # Paper, appendix B: LARS lr 0.3, weight decay 1e-6, warm-up and cosine, batch 256; augmentation: config's defaults.
    recipe=SOLO_LARS | {"lr": 0.3, "weight_decay": 1e-6},
)
def frossl(
    encoder: nn.Module, features: int, *, logarithm: bool = True, projector: Widths = (2048, 2048, 1024)
) -> Method:
    """Frobenius norms of the views' correlation matrices, and their distance; no weight to tune."""

    def objective(e: Embeddings) -> LossTerms:
        return objectives.frossl(e.z, logarithm=logarithm)

    return Method(encoder, mlp(features, projector), objective)


@entry(
    family="predictive",
    paper="BYOL (Grill et al. 2020)",
    # solo byol.yaml: lr 1.0, weight decay 1e-5, solarisation of the second view (augmentations/asymmetric.yaml)
    recipe=SOLO_LARS | {"lr": 1.0, "weight_decay": 1e-5, "augment.solarize": (0.0, 0.2)},
)
def byol(
    encoder: nn.Module,
    features: int,
    *,
    teacher_momentum: Probability = 0.99,
    projector: Widths = (4096, 256),
    predictor_width: Count = 4096,
) -> Method:
    """A predictor of one view's embedding meets a slow teacher's embedding of the other."""
    return Method(
        encoder,
        mlp(features, projector),
        both_orders,
        predictor=mlp(projector[-1], (predictor_width, projector[-1])),
        teacher_momentum=teacher_momentum,
    )


def both_orders(e: Embeddings) -> LossTerms:
    """−cos of each view's prediction and each other view's target: summed for two views, for more at the same scale."""
    assert e.prediction is not None
    assert e.target is not None
    V = e.z.shape[0]
    pairs = [(v, w) for v in range(V) for w in range(V) if v != w]
    losses = [objectives.asymmetric(e.prediction[v], e.target[w]).total for v, w in pairs]
    total = torch.stack(losses).sum() / (V - 1)
    return LossTerms(total, {"cosine": total.detach()})
