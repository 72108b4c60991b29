"""Networks and the state beside them."""

from twofold.models.encoders import ENCODERS, build_encoder, feature_dimension
from twofold.models.heads import mlp
from twofold.models.memory import Teacher

__all__ = ["ENCODERS", "Teacher", "build_encoder", "feature_dimension", "mlp"]
