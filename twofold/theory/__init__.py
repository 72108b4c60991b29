"""The papers' statements, computed: every claim both ways, figures from simulation, and small networks to watch."""

from twofold.theory.claim import Checked, Claim, Sides, check, claims
from twofold.theory.figure import Figure, figures
from twofold.theory.simulate import Trajectory, simulate

__all__ = ["Checked", "Claim", "Figure", "Sides", "Trajectory", "check", "claims", "figures", "simulate"]
