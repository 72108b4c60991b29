"""S-DIET: claims, figures drawn from simulations, and tables of runs."""
