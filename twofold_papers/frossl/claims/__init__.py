"""FroSSL (Skean et al. 2024): the loss, what it contrasts, and the gradients and dynamics of its linear variant."""

from twofold_papers.frossl.claims import objective, contrast, gradients, dynamics  # isort: skip  # in the paper's order

__all__ = ["contrast", "dynamics", "gradients", "objective"]
