"""`Classifier`: an encoder followed by a linear classifier of its features.

Shapes: N images, K features, C classes.
"""

from torch import Tensor, nn


class Classifier(nn.Module):
    """Map images to features `[N, K]` and to the probabilities of the classes `[N, C]`.

    Parameters
    ----------
    encoder : nn.Module
        Maps images to features [N, K].
    weight : Tensor [C, K]
        The weights of the classifier.
    bias : Tensor [C]
        What it adds.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, encoder: nn.Module, weight: Tensor, bias: Tensor):
        super().__init__()
        self.encoder = encoder
        self.register_buffer("weight", weight.float())
        self.register_buffer("bias", bias.float())

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.encoder(images)
        return features, self.probabilities(features)

    def probabilities(self, features: Tensor) -> Tensor:
        """Return the probabilities `[N, C]` for features `[N, K]`."""
        return (features.float() @ self.weight.T + self.bias).softmax(1)
