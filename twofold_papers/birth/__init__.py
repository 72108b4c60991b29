"""The birth of self-supervised learning: claims, figures drawn from simulations, and tables of runs."""
