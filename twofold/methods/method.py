"""The composition that every method is: views → encoder → projector → [predictor, teacher] → objective."""

import math
from collections.abc import Callable
from itertools import chain

import torch
from torch import Tensor, nn

from twofold.models import Teacher
from twofold.types import Batch, Embeddings, LossTerms

Objective = Callable[[Embeddings], LossTerms]


class Method(nn.Module):
    """Networks, the state beside them, and the objective that reads their outputs.

    Each view goes through the networks separately, as in the papers: BatchNorm sees one view at a time.
    """

    def __init__(
        self,
        encoder: nn.Module,
        projector: nn.Module,
        objective: Objective,
        *,
        predictor: nn.Module | None = None,
        teacher_momentum: float | None = None,
    ):
        super().__init__()
        self.encoder = encoder
        self.projector = projector
        self.predictor = predictor
        self.objective = objective
        self.teacher_momentum = teacher_momentum
        self.teacher = None if teacher_momentum is None else Teacher(nn.Sequential(encoder, projector))

    def forward(self, views_VNCHW: Tensor, batch: Batch) -> Embeddings:
        features = [self.encoder(view) for view in views_VNCHW]
        z = [self.projector(rows) for rows in features]
        return Embeddings(
            features=torch.stack(features),
            z=torch.stack(z),
            prediction=None if self.predictor is None else torch.stack([self.predictor(rows) for rows in z]),
            target=None if self.teacher is None else torch.stack([self.teacher(view) for view in views_VNCHW]),
            index=batch.index,
            labels=batch.labels,
        )

    def trained_parameters(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, parameter) for name, parameter in self.named_parameters() if parameter.requires_grad]

    @torch.no_grad()
    def update(self, progress: Tensor) -> None:
        """Move the state that is not trained, after the optimizer's step; `progress` is the part of the run done."""
        if self.teacher is not None and self.teacher_momentum is not None:
            # τ rises from its start to 1 along a cosine (BYOL).
            distance = (1 - self.teacher_momentum) * (torch.cos(math.pi * progress) + 1) / 2
            self.teacher.update(chain(self.encoder.parameters(), self.projector.parameters()), 1 - distance)
