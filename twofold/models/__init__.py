"""Networks and the state beside them."""

from twofold.models.encoders import ENCODERS, build_encoder, feature_dimension
from twofold.models.heads import mlp
from twofold.models.memory import Teacher
from twofold.models.norm import BatchNorm, fuse, may_go_together, together
from twofold.models.predictors import DirectPredictor

__all__ = [
    "ENCODERS",
    "BatchNorm",
    "DirectPredictor",
    "Teacher",
    "build_encoder",
    "feature_dimension",
    "fuse",
    "may_go_together",
    "mlp",
    "together",
]
