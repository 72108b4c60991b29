"""IsoLoss (Halvagal et al. 2023): claims, figures drawn from simulations, and tables of runs."""
