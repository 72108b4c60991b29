"""Simulation of small networks: how an objective changes the eigenvalues of the embeddings."""

from twofold.theory.simulate import Trajectory, simulate

__all__ = ["Trajectory", "simulate"]
