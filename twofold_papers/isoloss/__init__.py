"""IsoLoss (Halvagal et al. 2023): claims, figures drawn from simulation, and tables of runs."""
