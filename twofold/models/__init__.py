"""Networks (encoders, heads, predictors) and the state next to them (teacher, queue, classifier rows)."""

from twofold.models.encoders import ENCODERS, build_encoder, feature_dimension, has_name, name_of
from twofold.models.heads import Prototypes, Unit, mlp, small_weights
from twofold.models.memory import Centre, Progress, Queue, RunningCovariance, Teacher, rising_momentum
from twofold.models.norm import BatchNorm, fuse, may_go_together, one_by_one, share_statistics, together
from twofold.models.onednn_linear import fast_linear_layers
from twofold.models.predictors import DirectPredictor
from twofold.models.sample_head.head import BatchRows, SampleHead
from twofold.models.sample_head.multistep import LazyAdamW, LazySGD, multistep_adamw, multistep_sgd

__all__ = [
    "ENCODERS",
    "BatchNorm",
    "BatchRows",
    "Centre",
    "DirectPredictor",
    "LazyAdamW",
    "LazySGD",
    "Progress",
    "Prototypes",
    "Queue",
    "RunningCovariance",
    "SampleHead",
    "Teacher",
    "Unit",
    "build_encoder",
    "fast_linear_layers",
    "feature_dimension",
    "fuse",
    "has_name",
    "may_go_together",
    "mlp",
    "multistep_adamw",
    "multistep_sgd",
    "name_of",
    "one_by_one",
    "rising_momentum",
    "share_statistics",
    "small_weights",
    "together",
]
