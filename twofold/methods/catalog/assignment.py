"""Assignment methods: every image is its own class."""

import torch
from torch import nn

from twofold import objectives
from twofold.config import Probability
from twofold.methods.method import Method, Parts
from twofold.methods.registry import entry
from twofold.types import Embeddings, LossTerms


@entry(
    family="assignment",
    paper="DIET (Ibrahim et al. 2024)",
    recipe={
        "views": 1,
        "optimizer": "adamw",
        "lr": 1e-3,
        "weight_decay": 0.05,
        "augment.crop_scale": (0.08, 1.0),
        "augment.saturation": 0.4,
    },
    formula="cross entropy over all n images, label = the image's own number, label smoothing 0.8",
    source="S-DIET section 6",
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

    return Method(parts, nn.Identity(), objective, head=head)
