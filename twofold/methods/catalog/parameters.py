"""Types of parameters that several methods share, each with the explanation that `twofold methods NAME` shows."""

from __future__ import annotations

from typing import Annotated, Literal

from twofold.keys import Count, NonNegative, Positive, Probability, Widths

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
FrozenEpochs = Annotated[
    NonNegative, "number of epochs at the start of the run in which the prototypes are not trained"
]

PredictiveDistance = Annotated[
    Distance, "distance between prediction and target: cosine (−cos), or euclidean (half the squared distance)"
]
LossScale = Annotated[Positive, "factor of the loss; with factor 1, the loss is the sum over both orders of two views"]
StopGradient = Annotated[bool, "send no gradient through the target; false needs teacher_momentum=none"]
PredictorWidth = Annotated[Count, "width of the predictor's hidden layer"]
Exponent = Annotated[NonNegative, "exponent α of the eigenvalues in the predictor"]
CorrelationMomentum = Annotated[Probability, "fraction of the running correlation C that a step keeps"]
