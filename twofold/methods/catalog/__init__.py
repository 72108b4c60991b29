"""Every named method: one function that puts parts together and states its defaults, in a module for each family.

A function's keyword parameters are keys on the command line; `recipe` holds what the method asks of the rest of the
run. Learning rates are as used at batch 256. "solo" is solo-learn's CIFAR recipe (scripts/pretrain/cifar, 2023), whose
own factor of batch/256 is 1 there; blur is left out throughout, as the papers do for 32-pixel images, and weight decay
never counts for norms and biases, which with SGD it does there.
"""

from twofold.methods.catalog import assignment, contrastive, covariance, predictive, relational

__all__ = ["assignment", "contrastive", "covariance", "predictive", "relational"]
