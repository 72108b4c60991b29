"""FroSSL (Skean et al. 2024): claims, a figure drawn from a simulation, and tables of runs."""
