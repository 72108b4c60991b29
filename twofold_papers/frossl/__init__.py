"""FroSSL (Skean et al. 2024): claims, figures drawn from simulation, and tables of runs."""
