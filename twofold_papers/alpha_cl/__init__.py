"""α-CL (Tian 2022): claims, figures drawn from simulations, and tables of runs."""
