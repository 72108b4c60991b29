"""`twofold verify`: both sides of each claim of the papers, computed independently, and figures from simulation."""
