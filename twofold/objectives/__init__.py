"""Objectives: pure functions of tensors that return `LossTerms`."""

from twofold.objectives.contrastive import info_nce
from twofold.objectives.covariance import Moments, frossl, frossl_of_moments, moments
from twofold.objectives.predictive import asymmetric

__all__ = ["Moments", "asymmetric", "frossl", "frossl_of_moments", "info_nce", "moments"]
