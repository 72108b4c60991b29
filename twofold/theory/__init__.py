"""A laboratory of small networks: what an objective does to the eigenvalues of the embeddings."""

from twofold.theory.simulate import Trajectory, simulate

__all__ = ["Trajectory", "simulate"]
