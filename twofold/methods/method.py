"""The composition that every method is: views → encoder → projector → [predictor, teacher, head] → objective."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor, nn

from twofold.data.store import ImageStore
from twofold.errors import TwofoldError
from twofold.models import DirectPredictor, Teacher, may_go_together, rising_momentum, together
from twofold.objectives import Moments
from twofold.types import Batch, Embeddings, LossTerms

Objective = Callable[[Embeddings], LossTerms]
Remember = Callable[[Embeddings, Tensor], None]  # (the step's embeddings, the part of the run done): moves memory


@dataclass(frozen=True)
class OfMoments:
    """An objective by way of moments, which several processes can add up: `loss(statistics(z))`."""

    statistics: Callable[[Tensor], Moments]
    loss: Callable[[Moments], LossTerms]
    matrices: int  # D×D, that are in the moments


@dataclass(frozen=True)
class Parts:
    """What a method is built from."""

    encoder: nn.Module
    features: int  # K, what the encoder puts out
    images: ImageStore  # the training set, for methods that keep something for each image or know relations of images
    epochs: int  # of the run, for methods that change on the way
    views: int = 2  # V, for methods that keep something for each view
    local_views: int = 0  # L, small crops beside them


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
        steady_predictor: bool = False,
        direct: DirectPredictor | None = None,
        head: nn.Module | None = None,
        teacher_momentum: float | None = None,
        memory: nn.Module | None = None,
        remember: Remember | None = None,
        multi_crop: bool = False,
        of_moments: OfMoments | None = None,
        guess: float | None = None,
        few_dimensions: str = "",
    ):
        """`direct`, `head` and `memory` are held for the objective: a predictor in closed form, rows of a classifier or
        prototypes, and what outlives a step; `remember` moves the last, after each step. `multi_crop`: small crops,
        which have no targets, are of use to the objective. `of_moments` is the same objective, for several processes
        whose batch is larger than its embeddings are wide. `guess` is the loss of equal probabilities, where the method
        can end there; `few_dimensions` says why it leaves few of them by design, if it does, which is then no collapse.
        A `steady_predictor` keeps its learning rate through the run."""
        super().__init__()
        if parts.local_views and not multi_crop:
            raise TwofoldError(
                "this method treats all its views alike, and small crops do not show what whole images do: set "
                "augment.local_views=0, or choose dino, swav or moco, where small crops only predict whole images"
            )
        if not isinstance(projector, nn.Module):
            raise TwofoldError(
                f"Method's projector is a {type(projector).__name__}: give a module, such as "
                "mlp(parts.features, (256, 64)), or nn.Identity()"
            )
        if teacher_momentum is not None and not 0 <= teacher_momentum <= 1:
            raise TwofoldError(
                f"teacher_momentum={teacher_momentum:g} is not from 0 to 1: it is the part of the teacher that a step "
                "leaves as it is"
            )
        if remember is not None and memory is None and head is None:
            raise TwofoldError(
                "remember= moves what outlives a step, and nothing of that was given: pass the module that holds it as "
                "memory=, or checkpoints will not have it"
            )
        self.encoder = parts.encoder
        self.projector = projector
        self.predictor = predictor
        self.steady_predictor = steady_predictor
        self.direct = direct
        self.head = head
        self.memory = memory
        self.remember = remember
        self.objective = objective
        self.of_moments = of_moments
        self.guess = guess
        self.few_dimensions = few_dimensions
        self.teacher_momentum = teacher_momentum
        self.teacher = None if teacher_momentum is None else Teacher(nn.Sequential(parts.encoder, projector))
        self.together = all(may_go_together(network) for network in self.networks())

    def forward(
        self,
        views_VNCHW: Tensor,
        batch: Batch,
        local_LNCHW: Tensor | None = None,
        *,
        targets: bool = True,
        on_embeddings: Callable[[Tensor], None] | None = None,
    ) -> Embeddings:
        """Small crops follow the views in features, z and prediction; only the views have targets, if asked for.

        `meanwhile(z)` is called before the teacher's pass, beside which it may go on.
        """
        features = self.through(self.encoder, views_VNCHW)
        if local_LNCHW is not None:
            features = torch.cat([features, self.through(self.encoder, local_LNCHW)])
        z = self.through(self.projector, features)
        if on_embeddings is not None:
            on_embeddings(z)
        return Embeddings(
            features=features,
            z=z,
            index=batch.index,
            prediction=None if self.predictor is None else self.through(self.predictor, z),
            target=None if self.teacher is None or not targets else self.through(self.teacher, views_VNCHW),
        )

    def through(self, network: nn.Module, x_VN: Tensor) -> Tensor:
        """The network's outputs [V, N, ...], views one after another where it is not known to keep samples apart."""
        if self.together:
            return together(network, x_VN)
        return torch.stack([network(x_N) for x_N in x_VN])

    def networks(self) -> list[nn.Module]:
        """Those that `forward` runs."""
        return [*self.trained_networks(), *(() if self.teacher is None else (self.teacher,))]

    def trained_networks(self) -> list[nn.Module]:
        """Those that it runs with gradients."""
        return [network for network in (self.encoder, self.projector, self.predictor) if network is not None]

    def steady(self) -> nn.Module | None:
        """The network whose learning rate stays as it is."""
        return self.predictor if self.steady_predictor else None

    def gradients(self) -> tuple[list[Tensor], list[Tensor]]:
        """Those of what `forward` runs, to which every sample adds its part, and those of what the objective reads."""
        own = {id(parameter) for network in self.trained_networks() for parameter in network.parameters()}
        parts: list[Tensor] = []
        wholes: list[Tensor] = []
        for _, parameter in self.trained_parameters():
            if parameter.grad is not None:
                (parts if id(parameter) in own else wholes).append(parameter.grad)
        return parts, wholes

    def trained_parameters(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, parameter) for name, parameter in self.named_parameters() if parameter.requires_grad]

    @torch.no_grad()
    def prepare(self, z_VND: Tensor) -> None:
        """Move the state that must be current when the loss is computed; once a training step, before the loss."""
        if self.direct is not None:
            self.direct.prepare(z_VND.detach())

    @torch.no_grad()
    def update(self, embeddings: Embeddings, progress: Tensor) -> None:
        """Move the other untrained state, after the optimizer's step; `progress` is the part of the run done."""
        if self.remember is not None:
            self.remember(embeddings, progress)
        if self.teacher is not None and self.teacher_momentum is not None:
            student = chain(self.encoder.parameters(), self.projector.parameters())
            self.teacher.update(student, rising_momentum(self.teacher_momentum, progress))
