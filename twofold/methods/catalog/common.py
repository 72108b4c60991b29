"""What the methods of the catalog share: types of parameters, parts of recipes, and modules that are imported late.

The type of a parameter has the explanation that `twofold methods NAME` shows.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal

from twofold.keys import Bounds, NonNegative, Positive, Probability, Widths

Distance = Literal["cosine", "euclidean"]

Projector = Annotated[Widths, "widths of the projector's layers; the last is D, the width of the embeddings"]
Temperature = Annotated[Positive, "temperature τ that divides the similarities in the softmax"]
TeacherMomentum = Annotated[
    Probability,
    "momentum of the teacher: the fraction of its weights that a step keeps; rises to 1 along a cosine during the run",
]
OptionalTeacherMomentum = Annotated[
    Probability | None,
    "momentum of the teacher: the fraction of its weights that a step keeps; rises to 1 along a cosine during the run; "
    "none: no teacher, and the trained network gives the targets",
]
LabelSmoothing = Annotated[Probability, "fraction of the target that is spread evenly over all classes"]
OptionalProjector = Annotated[
    Widths | None,
    "widths of the projector's layers; the last is D, the width of the embeddings; none: no projector",
]
Normalize = Annotated[bool, "scale embeddings to unit length"]
FrozenEpochs = Annotated[
    NonNegative, "number of epochs at the start of the run in which the prototypes are not trained"
]

PredictiveDistance = Annotated[
    Distance, "distance between prediction and target: cosine (−cos), or euclidean (half the squared distance)"
]
LossScale = Annotated[Positive, "factor of the loss; with factor 1, the loss is the sum over both orders of two views"]
StopGradient = Annotated[bool, "send no gradient through the target; false needs teacher_momentum=none"]
PredictorWidth = Annotated[
    int, Bounds(0), "width of the predictor's hidden layer; 0: a linear predictor, a matrix without bias"
]
Exponent = Annotated[NonNegative, "exponent α of the eigenvalues in the predictor"]
GeneralEigenvectors = Annotated[
    bool,
    "take the eigenvectors of C from a solver for general matrices in float32, as in the authors' code; the predictor "
    "differs only if C lacks rank",
]
CorrelationMomentum = Annotated[Probability, "fraction of the running correlation C that a step keeps"]


# solo-learn sets clip_lr and eta 0.02, and does not adapt biases and norms; Twofold's LARS does the same.
SOLO_LARS = {"optimizer": "lars", "lars_eta": 0.02, "warmup_epochs": 10, "batch_size": 256}
STRONG_COLOUR = {
    "augment.brightness": 0.8,
    "augment.contrast": 0.8,
    "augment.saturation": 0.8,
    "augment.hue": 0.2,
}
# solo-learn's augmentations/symmetric.yaml, symmetric_weak.yaml and asymmetric.yaml. Their crops are smaller than
# Twofold's defaults.
SMALL_CROPS = {"augment.crop_scale": (0.08, 1.0)}
SYMMETRIC = SMALL_CROPS | STRONG_COLOUR
SYMMETRIC_WEAK = SMALL_CROPS | {"augment.saturation": 0.4}
ASYMMETRIC = SMALL_CROPS | {"augment.solarize": (0.0, 0.2)}  # 0.2 for every second view

# Continued pretraining: small changes of an encoder that starts from weights. Large learning rates for all of it and
# batch statistics make such an encoder worse, with any objective. `continued` of an entry has what differs by method.
# Measured: benchmarks/NOTES.md, "Continued pretraining".
MILD = {
    "augment.crop_scale": (0.4, 1.0),
    "augment.brightness": 0.2,
    "augment.contrast": 0.2,
    "augment.saturation": 0.2,
    "augment.hue": 0.0,
    "augment.grayscale": 0.0,
    "augment.blur": 0.0,
    "augment.solarize": 0.0,
}
MIDDLE = {
    "augment.crop_scale": (0.25, 1.0),
    "augment.brightness": 0.3,
    "augment.contrast": 0.3,
    "augment.saturation": 0.3,
    "augment.hue": 0.05,
}
CONTINUED = MILD | {
    "recipe": "continued",
    "optimizer": "adamw",
    "lr": 1e-3,
    "encoder_lr": 1e-4,
    "lr_scaling": "none",
    "weight_decay": 1e-4,
    "batch_size": 128,
    "epochs": 5,
    "head_epochs": 1.0,
    "warmup_epochs": 0.5,
    "freeze_batchnorm": "statistics",
    "adapter": True,
}
CONTINUED_METHOD = "simclr"  # if the user names none

# Short runs from scratch. The methods' own recipes are made for thousands of steps: LARS and strong augmentation learn
# little in hundreds. Measured: benchmarks/NOTES.md, "From scratch".
SHORT = MILD | {
    "recipe": "short",
    "encoder": "conv-patches",
    "optimizer": "adamw",
    "lr": 1e-3,
    "lr_scaling": "none",
    "weight_decay": 1e-4,
    "batch_size": 128,
    "adapter": True,
}
SHORT_METHOD = "s-diet"  # if the user names none


def continued_recipe(method: Entry) -> dict[str, Any]:
    """Return the settings with which a method trains an encoder that starts from weights."""
    return CONTINUED | dict(method.continued) | {"method": method.name}


def short_recipe(method: Entry) -> dict[str, Any]:
    """Return the settings with which a method trains a new encoder in few steps."""
    return SHORT | {"method": method.name}


class LazyModule:
    """A module that is imported when one of its names is first used.

    `twofold methods` and the check of keys read the catalog but need no tensors, and importing torch takes a second.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


if TYPE_CHECKING:
    import torch
    from torch import nn

    from twofold import methods, models, objectives
    from twofold.methods import own_function, relations
    from twofold.methods.registry import Entry
else:
    torch, nn = LazyModule("torch"), LazyModule("torch.nn")
    models, objectives = LazyModule("twofold.models"), LazyModule("twofold.objectives")
    methods, relations = LazyModule("twofold.methods"), LazyModule("twofold.methods.relations")
    own_function = LazyModule("twofold.methods.own_function")
