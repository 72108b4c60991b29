"""α-CL (Tian 2022): claims, figures drawn from simulation, and tables of runs."""
