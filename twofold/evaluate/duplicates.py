"""Near-duplicate images by the features of an encoder: `near_duplicates`, and preprocessing for it."""

from torch import Tensor

from twofold.data.duplicates import levelled, near_duplicates
from twofold.runs.preprocess import Preprocess

__all__ = ["Levelled", "near_duplicates"]


class Levelled:
    """Preprocessing that first gives all images the same brightness and contrast."""

    def __init__(self, preprocess: Preprocess):
        self.preprocess = preprocess

    def __call__(self, images: Tensor) -> Tensor:
        mean, std = self.preprocess.mean.view(-1, 1, 1), self.preprocess.std.view(-1, 1, 1)
        level = levelled(self.preprocess(images) * std + mean)
        return (level * std.mean() + mean.mean() - mean) / std
