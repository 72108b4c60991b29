"""Hand-made features: histograms of oriented gradients, and colour histograms.

They need no training and take seconds. A trained encoder that does not beat them is not worth its training time.

N is the number of images, C the number of channels, H and W height and width, K the number of features.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from twofold.data.store import ImageStore
from twofold.evaluate.features import ImageRows, batches, collect, pixels

CELLS = 8  # cells along each side of an image, for gradients
ORIENTATIONS = 9  # bins of unsigned orientations, over 180 degrees
CLIP = 0.2  # the largest entry of a normalised block of gradients
PARTS = 2  # parts along each side of an image, for colours
LEVELS = 6  # bins of each colour channel
LARGEST = 128  # pixels; larger images are reduced first, since finer gradients tell classes apart less well
BATCH = 256  # images
MOST_IMAGES = 20_000  # the largest set of images of which a run measures these features
MOST_PIXELS = 5_000 * LARGEST**2  # the same, counted after images were reduced to LARGEST; this takes about a minute


def is_affordable(images: int, side: int) -> bool:
    """Return whether these features are measured at the end of a run on so many images of this side."""
    return images <= MOST_IMAGES and images * min(side, LARGEST) ** 2 <= MOST_PIXELS


def handmade_features(images: ImageRows) -> Tensor:
    """Return float32 features [N, K] of all stored images, in order."""
    return collect(len(images), batches(images, hog_and_colour, BATCH, None))


def features_without_training(train: ImageStore, test: ImageStore) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the baselines that need no encoder: hand-made features, unless there are too many images, and raw pixels.

    Each is a pair: the features of training and of test images.
    """
    found = {"raw pixels": (pixels(train), pixels(test))}
    if is_affordable(len(train) + len(test), train.images.shape[-1]):
        found = {"HOG + colour": (handmade_features(train), handmade_features(test)), **found}
    return found


def hog_and_colour(images: Tensor) -> Tensor:
    """Compute histograms of oriented gradients and, with three channels, of colours.

    Parameters
    ----------
    images : Tensor of shape [N, C, H, W]
        Pixels from 0 to 255.

    Returns
    -------
    Tensor of shape [N, K]
        Gradients and colours each have unit length, so that both have the same influence on a cosine.
    """
    images = images.float() / 255
    factor = LARGEST / max(images.shape[2:])
    if factor < 1:
        size = [max(1, round(side * factor)) for side in images.shape[2:]]
        images = functional.interpolate(images, size, mode="bilinear", antialias=True, align_corners=False)
    parts = [functional.normalize(oriented_gradients(images))]
    if images.shape[1] == 3:
        parts.append(functional.normalize(colours(images)))
    return torch.cat(parts, 1)


def oriented_gradients(images: Tensor) -> Tensor:
    """Return histograms of oriented gradients [N, K] of images [N, C, H, W], as Dalal and Triggs (2005) define them.

    A pixel takes the gradient of its strongest channel and shares its magnitude between the two nearest orientations.
    Blocks of 2 × 2 cells overlap; each is normalised, clipped and normalised again.
    """
    padded = functional.pad(images, (1, 1, 1, 1), mode="replicate")
    across = padded[:, :, 1:-1, 2:] - padded[:, :, 1:-1, :-2]
    down = padded[:, :, 2:, 1:-1] - padded[:, :, :-2, 1:-1]
    strongest = (across.square() + down.square()).argmax(1, keepdim=True)
    across, down = across.gather(1, strongest), down.gather(1, strongest)
    magnitude = (across.square() + down.square()).sqrt()
    position = torch.atan2(down, across).remainder(math.pi) * (ORIENTATIONS / math.pi) - 0.5
    bins = torch.arange(ORIENTATIONS, device=images.device).view(1, -1, 1, 1)
    distance = (position - bins).abs()
    share = (1 - torch.minimum(distance, ORIENTATIONS - distance)).clamp(min=0)
    height, width = images.shape[2:]
    cells = (max(2, min(CELLS, height // 2)), max(2, min(CELLS, width // 2)))
    histograms = functional.adaptive_avg_pool2d(magnitude * share, cells)
    corners = [histograms[:, :, i : cells[0] - 1 + i, j : cells[1] - 1 + j] for i in (0, 1) for j in (0, 1)]
    blocks = torch.cat(corners, 1)
    norm = blocks.norm(dim=1, keepdim=True)
    blocks = (blocks / (norm + 1e-3)).clamp(max=CLIP)  # 1e-3 keeps noise in flat areas small
    return functional.normalize(blocks, dim=1, eps=1e-6).flatten(1)


def colours(images: Tensor) -> Tensor:
    """Return the square roots of joint colour histograms [N, K] of parts of images [N, 3, H, W].

    The Euclidean distance between square roots is the Hellinger distance between histograms.
    """
    levels = (images * LEVELS).long().clamp(max=LEVELS - 1)
    joint = (levels[:, 0] * LEVELS + levels[:, 1]) * LEVELS + levels[:, 2]
    n, height, width = joint.shape
    rows = torch.arange(height, device=joint.device) * PARTS // height
    columns = torch.arange(width, device=joint.device) * PARTS // width
    part = rows.unsqueeze(1) * PARTS + columns
    counts = torch.zeros(n, PARTS**2 * LEVELS**3, device=images.device)
    counts.scatter_add_(1, (part * LEVELS**3 + joint).flatten(1), torch.ones_like(joint, dtype=counts.dtype).flatten(1))
    return (counts / (height * width)).sqrt()
