"""α-CL (Tian 2022): the two players, deep linear networks, normalisation layers, two-layer ReLU networks."""

from twofold_papers.alpha_cl.claims import players, choices, linear, products, norms, relu  # isort: skip  # in the order of the paper

__all__ = ["choices", "linear", "norms", "players", "products", "relu"]
