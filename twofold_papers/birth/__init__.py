"""The birth of self-supervised learning: claims, figures drawn from simulation, and tables of runs."""
