"""The input that a pretrained network was made for: the size of its images, their channels and their normalisation.

`pretrain` uses it for runs that start from weights, and `diagnose` for encoders from elsewhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from twofold.models.efficientnet import EfficientNetLite
from twofold.runs.preprocess import Preprocess

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TORCHVISION_SIZE = 224


@dataclass(frozen=True)
class OwnInput:
    """The input of a pretrained network. `mean` and `std` are for pixels from 0 to 1."""

    image_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    has_fixed_size: bool = False

    @property
    def channels(self) -> int:
        return len(self.mean)

    def normalisation(self) -> dict[str, Any]:
        """The settings of a run with this input, without the size of its images."""
        return {"channels": self.channels, "mean": self.mean, "std": self.std}


#: torchvision's networks, and files with their weights.
TORCHVISION = OwnInput(TORCHVISION_SIZE, IMAGENET_MEAN, IMAGENET_STD)
#: Pixels from 0 to 255 become (x − 127) / 128.
EFFICIENTNET_LITE0 = OwnInput(224, (127 / 255,) * 3, (128 / 255,) * 3)


def own_input(network: nn.Module) -> OwnInput | None:
    """The input that a module states for itself or for a network in it; None if it states none.

    Known are Twofold's `preprocess`, the configuration of timm's models, torchvision's classes and EfficientNet-Lite.
    """
    preprocess = getattr(network, "preprocess", None)
    if isinstance(preprocess, Preprocess):
        mean, std = preprocess.mean.tolist(), preprocess.std.tolist()
        return OwnInput(preprocess.image_size, tuple(mean), tuple(std), has_fixed_size=True)
    for part in network.modules():
        if isinstance(part, EfficientNetLite):
            return EFFICIENTNET_LITE0
        found = of_timm(getattr(part, "pretrained_cfg", None) or getattr(part, "default_cfg", None))
        if found is not None:
            return found
        if any(kind.__module__.startswith("torchvision.models") for kind in type(part).__mro__):
            return TORCHVISION
    return None


def of_timm(settings: Any) -> OwnInput | None:
    """The input in a configuration of timm: a dict, or an object with the same names."""
    if settings is None:
        return None
    values = settings if isinstance(settings, Mapping) else vars(settings)
    size, mean, std = (values.get(name) for name in ("input_size", "mean", "std"))
    if not (size and mean and std) or len(size) != 3:
        return None
    return OwnInput(size[-1], tuple(mean), tuple(std), bool(values.get("fixed_input_size")))
