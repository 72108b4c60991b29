"""The adapter: a linear map of an encoder's features, fitted to the user's images in closed form.

Shapes: N images, K features of the encoder, R features of the adapter.
"""

from contextlib import nullcontext

import torch
from torch import Tensor, nn

from twofold.errors import TwofoldError


class Adapter(nn.Module):
    """Map features to z = (f − mean) · matrixᵀ.

    Parameters
    ----------
    mean : Tensor [K]
        What is subtracted from the features.
    matrix : Tensor [R, K]
        The linear map.
    """

    mean: Tensor
    matrix: Tensor

    def __init__(self, mean: Tensor, matrix: Tensor):
        super().__init__()
        if mean.dim() != 1 or matrix.dim() != 2 or matrix.shape[1] != len(mean):
            raise TwofoldError(
                f"an adapter needs a mean [K] and a matrix [R, K], not {list(mean.shape)} and {list(matrix.shape)}"
            )
        self.register_buffer("mean", mean.float())
        self.register_buffer("matrix", matrix.float())

    def extra_repr(self) -> str:
        return f"{self.matrix.shape[1]} → {self.matrix.shape[0]}"

    def forward(self, features: Tensor) -> Tensor:
        """Map features [..., K] to [..., R], in float32 also under autocast."""
        device = features.device.type
        # Without autocast there is no context to leave, so that exported graphs have none.
        with torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext():
            return (features.float() - self.mean) @ self.matrix.T


class AdaptedEncoder(nn.Module):
    """An encoder followed by its adapter. `preprocess` is that of the encoder.

    Parameters
    ----------
    encoder : nn.Module
        Maps images to features [N, K].
    adapter : Adapter
        Maps the features to [N, R].
    name : str
        How the adapter was made, for messages.
    """

    encoder: nn.Module
    adapter: Adapter

    def __init__(self, encoder: nn.Module, adapter: Adapter, name: str):
        super().__init__()
        self.encoder, self.adapter, self.name = encoder, adapter, name

    def forward(self, images: Tensor) -> Tensor:
        return self.adapter(self.encoder(images))

    @property
    def preprocess(self) -> nn.Module:
        return self.encoder.preprocess  # type: ignore[return-value]
