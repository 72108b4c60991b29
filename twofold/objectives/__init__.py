"""Objectives: pure functions of tensors that return `LossTerms`, and the graphs and weights that some of them take."""

from twofold.objectives.assignment import batch_cross_entropy, dino, squared_error, swav
from twofold.objectives.contrastive import (
    contrastive,
    family,
    importance_of,
    info_nce,
    moco,
    spectral_contrastive,
)
from twofold.objectives.covariance import (
    barlow_twins,
    barlow_twins_of_moments,
    corinfomax,
    frossl,
    frossl_of_moments,
    vicreg,
    vicreg_of_moments,
    w_mse,
)
from twofold.objectives.graphs import (
    across_views,
    balanced_weights,
    combine,
    group_graph,
    knn_graph,
    label_graph,
    nearest_neighbours,
    neighbour_graph,
    view_graph,
)
from twofold.objectives.importance import alpha_cl, contrastive_covariance, energy, importance
from twofold.objectives.moments import Moments, moments
from twofold.objectives.predictive import asymmetric, isoloss
from twofold.objectives.relational import graph_vicreg, orthogonal_head, ridge_graph, ridge_labels

__all__ = [
    "Moments",
    "across_views",
    "alpha_cl",
    "asymmetric",
    "balanced_weights",
    "barlow_twins",
    "barlow_twins_of_moments",
    "batch_cross_entropy",
    "combine",
    "contrastive",
    "contrastive_covariance",
    "corinfomax",
    "dino",
    "energy",
    "family",
    "frossl",
    "frossl_of_moments",
    "graph_vicreg",
    "group_graph",
    "importance",
    "importance_of",
    "info_nce",
    "isoloss",
    "knn_graph",
    "label_graph",
    "moco",
    "moments",
    "nearest_neighbours",
    "neighbour_graph",
    "orthogonal_head",
    "ridge_graph",
    "ridge_labels",
    "spectral_contrastive",
    "squared_error",
    "swav",
    "vicreg",
    "vicreg_of_moments",
    "view_graph",
    "w_mse",
]
