"""Networks and the state beside them."""

from twofold.models.encoders import ENCODERS, build_encoder, feature_dimension
from twofold.models.heads import Prototypes, Unit, mlp
from twofold.models.memory import Centre, Progress, Queue, RunningCovariance, Teacher, rising_momentum
from twofold.models.predictors import DirectPredictor

__all__ = [
    "ENCODERS",
    "Centre",
    "DirectPredictor",
    "Progress",
    "Prototypes",
    "Queue",
    "RunningCovariance",
    "Teacher",
    "Unit",
    "build_encoder",
    "feature_dimension",
    "mlp",
    "rising_momentum",
]
