"""FroSSL: Frobenius norm minimization for self-supervised learning (Skean, Dhakal, Jacobs, Sanchez Giraldo)."""

from twofold_papers.frossl.claims import objective, contrast, gradients, dynamics  # isort: skip  # the order of the paper

__all__ = ["contrast", "dynamics", "gradients", "objective"]
