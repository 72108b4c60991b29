"""A method as a run begins with it."""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from twofold.config import Config
from twofold.data.store import ImageStore
from twofold.errors import TwofoldError
from twofold.methods import Method, Parts, find
from twofold.models import build_encoder, feature_dimension
from twofold.precision import own_modes
from twofold.randomness import seeded
from twofold.runs import initial_weights
from twofold.train.guards import memory_errors


def build_method(
    config: Config, images: ImageStore, encoder: nn.Module | None = None, weights: Mapping[str, Tensor] | None = None
) -> tuple[Method, int, nn.Module]:
    """The method with its initial weights, a function of the seed and of the weights it is given; its feature
    dimension; and its encoder without them."""
    assert config.image_size is not None
    channels = images.images.shape[1]
    if torch.get_default_dtype() != torch.float32:
        raise TwofoldError(
            f"torch makes {torch.get_default_dtype()} by default here, and networks are trained in float32: "
            "torch.set_default_dtype(torch.float32) first"
        )
    if encoder is not None:
        refuse_untrainable(encoder)
    with seeded(config.seed), memory_errors():
        network = encoder
        if network is None:
            network = build_encoder(config.encoder, channels=channels, stem=config.stem, image_size=config.image_size)
        features = feature_dimension(network, channels, config.image_size)
        if encoder is not None:
            refuse_unfit_features(encoder, channels, config.image_size)
        untrained = copy.deepcopy(network)
        if weights is not None:
            initial_weights.put(network, weights, str(config.init))
        parts = Parts(network, features, images, config.epochs, config.views, config.augment.local_views)
        method = find(config.method).build(parts, **config.parameters)
    if not isinstance(method, Method):
        raise TwofoldError(f"{config.method}'s function returns a {type(method).__name__}: return Method(parts, …)")
    return method, features, untrained


def refuse_untrainable(encoder: nn.Module) -> None:
    parameters = list(encoder.parameters())
    if not any(parameter.requires_grad for parameter in parameters):
        raise TwofoldError("the encoder has no weights to train: none that requires_grad")
    others = {parameter.dtype for parameter in parameters if parameter.is_floating_point()} - {torch.float32}
    if others:
        raise TwofoldError(
            f"the encoder has weights of {others.pop()}: give encoder.float(); see precision for fewer bits"
        )


def refuse_unfit_features(encoder: nn.Module, channels: int, image_size: int) -> None:
    """Those of another type than the projector's weights, and those from which no gradient comes back."""
    if torch.is_inference_mode_enabled():
        return  # of who looks at a run, and does not train
    if any(tensor.is_inference() for tensor in (*encoder.parameters(), *encoder.buffers())):
        raise TwofoldError("the encoder was made under torch.inference_mode(), and cannot be trained: make it outside")
    network = copy.deepcopy(encoder)  # so that its running statistics stay as they are
    blank = torch.zeros(2, channels, image_size, image_size, device=next(network.parameters()).device)
    with own_modes(), torch.enable_grad():
        features = network.eval()(blank)
        # Some switch gradients off unless they are in training.
        learns = features.requires_grad or network.train()(blank).requires_grad
    if features.dtype != torch.float32:
        raise TwofoldError(f"the encoder returns features of {features.dtype}: let it return features.float()")
    if not learns:
        raise TwofoldError(
            "no gradient comes back through the encoder's features, so it could not learn: look for no_grad() or "
            "detach() in its forward"
        )
