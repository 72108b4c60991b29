"""Linear probes by the protocols of papers: SGD (solo-learn) and Adam (FroSSL on ImageNet).

Shapes: n rows, K features, C classes. Features are not standardised, weights start at 0, and there is no penalty. One
difference from the papers: they augment the training images in each epoch, whereas here the features are computed once,
without augmentation.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from twofold.counter import key, permutation
from twofold.errors import TwofoldError
from twofold.evaluate.linear import LinearProbe, fit_linear, probe_labels

BETAS, EPSILON = (0.9, 0.999), 1e-8  # of Adam


def fit_sgd(
    features: Tensor,
    labels: Tensor,
    *,
    classes: int,
    epochs: int = 100,
    lr: float = 0.3,
    milestones: Sequence[int] = (60, 80),
    batch_size: int = 256,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> LinearProbe:
    """Fit a linear probe by the linear evaluation of solo-learn: SGD with momentum 0.9.

    Parameters
    ----------
    features, labels, classes, seed, device
        As in `fit_linear`.
    epochs : int
        The number of epochs.
    lr : float
        The learning rate.
    milestones : sequence of int
        Epochs from which the learning rate is divided by 10 again.
    batch_size : int
        The number of rows in a batch.
    """
    layer = torch.zeros(features.shape[1] + 1, classes, device=device or features.device)  # weights and biases
    velocity = torch.zeros_like(layer)
    for epoch, gradient in _gradients(layer, features, labels, epochs, batch_size, seed):
        velocity.mul_(0.9).add_(gradient)
        layer -= lr * 0.1 ** sum(epoch >= milestone for milestone in milestones) * velocity
    return _probe(layer.to(features.device), "SGD", lr)


def fit_adam(
    features: Tensor,
    labels: Tensor,
    *,
    classes: int,
    epochs: int = 100,
    lr: float = 5e-3,
    step_epochs: int = 10,
    batch_size: int = 256,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> LinearProbe:
    """Fit a linear probe by the protocol of FroSSL on ImageNet (section 6.2): Adam without weight decay.

    Parameters
    ----------
    features, labels, classes, seed, device
        As in `fit_linear`.
    epochs : int
        The number of epochs.
    lr : float
        The learning rate.
    step_epochs : int
        After this many epochs, the learning rate is divided by 10 again. The paper does not give the factor.
    batch_size : int
        The number of rows in a batch; the paper does not give it.
    """
    layer = torch.zeros(features.shape[1] + 1, classes, device=device or features.device)
    mean, square = torch.zeros_like(layer), torch.zeros_like(layer)
    steps = enumerate(_gradients(layer, features, labels, epochs, batch_size, seed), start=1)
    for step, (epoch, gradient) in steps:
        mean.lerp_(gradient, 1 - BETAS[0])
        square.lerp_(gradient.square(), 1 - BETAS[1])
        scale = (square / (1 - BETAS[1] ** step)).sqrt() + EPSILON
        layer -= lr * 0.1 ** (epoch // step_epochs) / (1 - BETAS[0] ** step) * mean / scale
    return _probe(layer.to(features.device), "Adam", lr)


def _gradients(
    layer: Tensor, features: Tensor, labels: Tensor, epochs: int, batch_size: int, seed: int
) -> Iterator[tuple[int, Tensor]]:
    """The number of the epoch and the gradient of the mean cross entropy, for each batch of each epoch."""
    labels = probe_labels(features, labels, layer.shape[1])
    numbers = torch.arange(len(features), device=features.device)
    for epoch in range(epochs):
        for rows in permutation(key(seed, "probe order", epoch, numbers)).split(batch_size):
            x, label = features[rows].to(layer), labels[rows].to(layer.device)
            error = (x @ layer[:-1] + layer[-1]).softmax(1)
            error.scatter_add_(1, label.unsqueeze(1), -torch.ones_like(error[:, :1])).div_(len(rows))
            yield epoch, torch.cat([x.T @ error, error.sum(0, keepdim=True)])


def _probe(layer: Tensor, name: str, lr: float) -> LinearProbe:
    if not bool(torch.isfinite(layer).all()):
        raise TwofoldError(f"{name} with the learning rate {lr:g} diverges on these features; use --solver lbfgs")
    weight, bias = layer[:-1], layer[-1]
    return LinearProbe(torch.zeros_like(weight[:, 0]), torch.ones_like(weight[:, 0]), weight, bias, 0.0, None)


SOLVERS: dict[str, Callable[..., LinearProbe]] = {"lbfgs": fit_linear, "sgd": fit_sgd, "adam": fit_adam}
