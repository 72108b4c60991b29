"""The catalog: one function for each method, which builds the method and states its defaults; one module per family.

A function's keyword parameters are keys on the command line; `recipe` sets other keys of the run. Learning rates are
stated for batch 256. "solo-learn" means its recipes for CIFAR (scripts/pretrain/cifar, 2023), whose own factor of
batch/256 is 1 there. There are two differences from solo-learn: no method uses blur, since the papers leave it out for
32-pixel images, and weight decay never applies to norms and biases, while solo-learn decays them with SGD.
"""

from twofold.methods.catalog import assignment, contrastive, covariance, predictive, relational

__all__ = ["assignment", "contrastive", "covariance", "predictive", "relational"]
