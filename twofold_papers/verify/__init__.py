"""`twofold verify` checks the claims of the papers numerically and draws their figures from simulations."""
