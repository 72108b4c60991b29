"""`Method`, the composition of every method: views → encoder → projector → [predictor, teacher, head] → objective."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Self

import torch
from torch import Tensor, nn

from twofold.data.store import ImageStore
from twofold.errors import TwofoldError
from twofold.models import DirectPredictor, Teacher, may_go_together, one_by_one, rising_momentum, together
from twofold.objectives import Moments
from twofold.types import Batch, Embeddings, LossTerms

Objective = Callable[[Embeddings], LossTerms]
PassViews = Callable[[nn.Module, Tensor], Tensor]  # (network, views [V, N, ...]) → outputs [V, N, ...]
UpdateState = Callable[[Embeddings, Tensor], None]  # (embeddings of the step, progress of the run from 0 to 1)


@dataclass(frozen=True)
class OfMoments:
    """An objective as a function of moments: `loss(statistics(z))`. Several processes can add up their moments."""

    statistics: Callable[[Tensor], Moments]  # maps embeddings [V, N, D] to their moments
    loss: Callable[[Moments], LossTerms]  # maps moments to the loss
    matrices: int  # number of D×D matrices in the moments


@dataclass(frozen=True)
class Parts:
    """The parts that a method is built from, passed to the method's function.

    Attributes
    ----------
    encoder : nn.Module
        Maps images [N, C, H, W] to features [N, K].
    features : int
        K, the width of the features.
    images : ImageStore
        The training set, for methods that keep state for each image or use relations between images.
    epochs : int
        Epochs of the run, for methods with a schedule.
    views : int
        V, the number of views of each image, for methods that keep state for each view.
    local_views : int
        The number of small crops of each image, in addition to the views (multi-crop).
    """

    encoder: nn.Module
    features: int
    images: ImageStore
    epochs: int
    views: int = 2
    local_views: int = 0


class Method(nn.Module):
    """The networks of a method, their state, and the objective.

    BatchNorm computes its statistics for each view separately, as in the papers, even if views share a forward pass.

    Parameters
    ----------
    parts : Parts
        The parts that the method's function received.
    projector : nn.Module
        Maps features [N, K] to embeddings [N, D].
    objective : callable
        Maps `Embeddings` to `LossTerms`.
    predictor : nn.Module, optional
        Maps embeddings [N, D] to predictions [N, D].
    steady_predictor : bool
        Keep the predictor's learning rate constant during the run.
    direct : DirectPredictor, optional
        A predictor in closed form. It is updated before the loss is computed.
    head : nn.Module, optional
        Classifier rows or prototypes that the objective uses.
    teacher_momentum : float, optional
        Add a teacher with this momentum, which rises to 1 during the run. None: no teacher.
    memory : nn.Module, optional
        State that outlives a step, such as a queue. It is part of checkpoints.
    update_state : callable, optional
        `update_state(embeddings, progress)` updates `memory` or `head` after each step; `progress` goes from 0 to 1.
    multi_crop : bool
        The objective accepts small crops, which have no targets.
    of_moments : OfMoments, optional
        The same objective as a function of moments. Several processes use it if the batch has more images than the
        embeddings have dimensions.
    guess : float, optional
        The loss when all probabilities are equal, if training can get stuck there.
    few_dimensions : str
        The reason why the method uses few dimensions by design, as a sentence. Verdicts then report no collapse.
    classifies : bool
        `head` is an `nn.Linear` that classifies features into the classes of the labels. The run then saves it with the
        encoder, for `twofold predict`.

    Examples
    --------
    Your own method, which you then train with `twofold.pretrain("photos", method="mine")`:

    >>> from twofold.methods import Method, entry
    >>> from twofold.models import mlp
    >>> @entry()
    ... def mine(parts, *, weight: float = 1.0):
    ...     projector = mlp(parts.features, (512, 128))
    ...     return Method(parts, projector, lambda e: my_loss(e.z, weight))
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
        update_state: UpdateState | None = None,
        multi_crop: bool = False,
        of_moments: OfMoments | None = None,
        guess: float | None = None,
        few_dimensions: str = "",
        classifies: bool = False,
    ):
        super().__init__()
        _refuse(parts, projector, teacher_momentum, multi_crop)
        if update_state is not None and memory is None and head is None:
            raise TwofoldError(
                "update_state= needs memory= or head=: pass the module whose state it updates, so that checkpoints "
                "contain that state"
            )
        self.encoder = parts.encoder
        self.projector = projector
        self.predictor = predictor
        self.steady_predictor = steady_predictor
        self.direct = direct
        self.head = head
        self.memory = memory
        self.update_state = update_state
        self.objective = objective
        self.of_moments = of_moments
        self.guess = guess
        self.few_dimensions = few_dimensions
        self.classifies = classifies
        self.teacher_momentum = teacher_momentum
        self.teacher = None if teacher_momentum is None else Teacher(nn.Sequential(parts.encoder, projector))
        self.together = all(may_go_together(network) for network in self.networks())
        self.pass_views: PassViews = together if self.together else one_by_one
        self.heads_only = False
        self.constant: Sequence[nn.Module] = ()

    def forward(
        self,
        views_VNCHW: Tensor,
        batch: Batch,
        local_LNCHW: Tensor | None = None,
        *,
        targets: bool = True,
        on_embeddings: Callable[[Tensor], None] | None = None,
    ) -> Embeddings:
        """Run the networks on the views of a batch.

        Parameters
        ----------
        views_VNCHW : Tensor
            The views [V, N, C, H, W].
        batch : Batch
            The batch that the views come from.
        local_LNCHW : Tensor, optional
            Small crops [L, N, C, h, w]. They follow the views in `features`, `z` and `prediction`, and have no target.
        targets : bool
            Whether to run the teacher.
        on_embeddings : callable, optional
            Called with `z` before the teacher's forward pass, so that work on `z` can overlap with it.
        """
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.heads_only):
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
        """Return the network's outputs [V, N, ...].

        Each view has its own forward pass if the networks may mix samples, or if `pass_views` is `one_by_one`.
        """
        return self.pass_views(network, x_VN)

    def train(self, mode: bool = True) -> Self:
        """Switch to training mode, except for what does not change: frozen parts, and at first the encoder."""
        super().train(mode)
        for part in self.constant:
            part.training = False
        if self.heads_only:
            for encoder in self.encoders():
                encoder.eval()
        return self

    def keep_constant(self, modules_of: Callable[[nn.Module], Sequence[nn.Module]]) -> None:
        """Keep modules of the encoder in evaluation mode, and the same modules of the teacher's encoder."""
        self.constant = [part for encoder in self.encoders() for part in modules_of(encoder)]
        self.train(self.training)

    def train_heads_only(self, heads_only: bool) -> None:
        """Train the projector and other heads only: the encoder has no gradients and stays in evaluation mode."""
        if heads_only != self.heads_only:
            self.heads_only = heads_only
            self.train(self.training)

    def encoders(self) -> list[nn.Module]:
        """Return the encoder and, if there is a teacher, its encoder."""
        return [self.encoder, *(() if self.teacher is None else (self.teacher.network.get_submodule("0"),))]

    def networks(self) -> list[nn.Module]:
        """Return the networks that `forward` runs."""
        return [*self.trained_networks(), *(() if self.teacher is None else (self.teacher,))]

    def trained_networks(self) -> list[nn.Module]:
        """Return the networks that `forward` runs with gradients."""
        return [network for network in (self.encoder, self.projector, self.predictor) if network is not None]

    def steady(self) -> nn.Module | None:
        """Return the network whose learning rate stays constant, if any."""
        return self.predictor if self.steady_predictor else None

    def gradients(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return the gradients of the networks that `forward` runs, and those of other modules, such as the head.

        With several processes, each process has the gradients of the networks for its own samples only. The gradients
        of the other modules are complete in each process.
        """
        own = {id(parameter) for network in self.trained_networks() for parameter in network.parameters()}
        partial: list[Tensor] = []
        complete: list[Tensor] = []
        for _, parameter in self.trained_parameters():
            if parameter.grad is not None:
                (partial if id(parameter) in own else complete).append(parameter.grad)
        return partial, complete

    def trained_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """Return the names and values of all parameters that get a gradient."""
        return [(name, parameter) for name, parameter in self.named_parameters() if parameter.requires_grad]

    @torch.no_grad()
    def prepare(self, z_VND: Tensor) -> None:
        """Update the state that the loss needs. The trainer calls this once per step, before the loss."""
        if self.direct is not None:
            self.direct.prepare(z_VND.detach())

    @torch.no_grad()
    def update(self, embeddings: Embeddings, progress: Tensor) -> None:
        """Update the remaining state. The trainer calls this after the optimizer's step.

        `progress` goes from 0 to 1 during the run.
        """
        if self.update_state is not None:
            self.update_state(embeddings, progress)
        if self.teacher is not None and self.teacher_momentum is not None:
            student = chain(self.encoder.parameters(), self.projector.parameters())
            self.teacher.update(student, rising_momentum(self.teacher_momentum, progress))


def _refuse(parts: Parts, projector: object, teacher_momentum: float | None, multi_crop: bool) -> None:
    """Refuse arguments of `Method` that cannot work."""
    if parts.local_views and not multi_crop:
        raise TwofoldError(
            f"augment.local_views={parts.local_views}: this method cannot use small crops, because "
            "all its views are targets; set augment.local_views=0, or choose dino, swav or moco"
        )
    if not isinstance(projector, nn.Module):
        raise TwofoldError(
            f"Method's projector is a {type(projector).__name__}: pass a module, such as "
            "mlp(parts.features, (256, 64)), or nn.Identity()"
        )
    if teacher_momentum is not None and not 0 <= teacher_momentum <= 1:
        raise TwofoldError(
            f"teacher_momentum={teacher_momentum:g} is not from 0 to 1: it is the part of the teacher's weights "
            "that a step keeps"
        )
