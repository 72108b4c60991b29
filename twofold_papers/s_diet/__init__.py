"""S-DIET: claims, figures drawn from simulation, and tables of runs."""
