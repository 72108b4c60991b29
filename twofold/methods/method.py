"""The composition that every method is: views → encoder → projector → [predictor, teacher, head] → objective."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor, nn

from twofold.data.store import ImageStore
from twofold.models import DirectPredictor, Teacher, may_go_together, together
from twofold.types import Batch, Embeddings, LossTerms

Objective = Callable[[Embeddings], LossTerms]


@dataclass(frozen=True)
class Parts:
    """What a method is built from."""

    encoder: nn.Module
    features: int  # K, what the encoder puts out
    images: ImageStore  # the training set, for methods that keep something for each image or know relations of images


class Method(nn.Module):
    """Networks, the state beside them, and the objective that reads their outputs.

    BatchNorm sees one view at a time, as in the papers, also where views share a pass through the networks.
    """

    def __init__(
        self,
        parts: Parts,
        projector: nn.Module,
        objective: Objective,
        *,
        predictor: nn.Module | None = None,
        direct: DirectPredictor | None = None,
        head: nn.Module | None = None,
        teacher_momentum: float | None = None,
    ):
        """`direct` and `head` are held for the objective: a predictor in closed form, and rows of a classifier."""
        super().__init__()
        self.encoder = parts.encoder
        self.projector = projector
        self.predictor = predictor
        self.direct = direct
        self.head = head
        self.objective = objective
        self.teacher_momentum = teacher_momentum
        self.teacher = None if teacher_momentum is None else Teacher(nn.Sequential(parts.encoder, projector))
        networks = (self.encoder, self.projector, self.predictor, self.teacher)
        self.together = all(may_go_together(network) for network in networks if network is not None)

    def forward(self, views_VNCHW: Tensor, batch: Batch) -> Embeddings:
        features = self.through(self.encoder, views_VNCHW)
        z = self.through(self.projector, features)
        return Embeddings(
            features=features,
            z=z,
            index=batch.index,
            prediction=None if self.predictor is None else self.through(self.predictor, z),
            target=None if self.teacher is None else self.through(self.teacher, views_VNCHW),
        )

    def through(self, network: nn.Module, x_VN: Tensor) -> Tensor:
        """The network's outputs [V, N, ...], views one after another where it is not known to keep samples apart."""
        if self.together:
            return together(network, x_VN)
        return torch.stack([network(x_N) for x_N in x_VN])

    def trained_parameters(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, parameter) for name, parameter in self.named_parameters() if parameter.requires_grad]

    @torch.no_grad()
    def prepare(self, embeddings: Embeddings) -> None:
        """Move the state that must be current when the loss is computed; once a training step, before the loss."""
        if self.direct is not None:
            self.direct.update(embeddings.z.detach())

    @torch.no_grad()
    def update(self, progress: Tensor) -> None:
        """Move the other untrained state, after the optimizer's step; `progress` is the part of the run done."""
        if self.teacher is not None and self.teacher_momentum is not None:
            # τ rises from its start to 1 along a cosine (BYOL).
            distance = (1 - self.teacher_momentum) * (torch.cos(math.pi * progress) + 1) / 2
            self.teacher.update(chain(self.encoder.parameters(), self.projector.parameters()), 1 - distance)
