"""The papers' statements, computed: every claim both ways, figures from simulation, and small networks to watch."""

from twofold.theory.claim import Checked, Claim, Sides, check, claims
from twofold.theory.figure import Figure, figures

__all__ = ["Checked", "Claim", "Figure", "Sides", "check", "claims", "figures"]
