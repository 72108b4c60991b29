"""Geometric operations on a batch, with separate parameters for each sample: crop, resize, flip, affine maps and blur.

`data/augment.py` uses them for views and evaluation, and reports use them to resize images.

Crop, resize, flip and blur are separable: each is a pair of small matrices for each sample, one for rows and one for
columns, applied by two batched matrix products. Rotation and shear are not separable and use `grid_sample`.

In shapes, N is the number of images, V the number of views of each, B = V·N, C the number of channels, H×W the stored
size, and S the side of the result.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

CROP_ATTEMPTS = 10
BLOCK_BYTES = 2**28  # of pictures as float32

Size = tuple[int, int] | tuple[Tensor, Tensor]  # height and width of all images, or of each, as float tensors
Edge = float | Tensor


def crop_boxes(
    area: Tensor,
    ratio: Tensor,
    top: Tensor,
    left: Tensor,
    *,
    size: Size,
    scale: tuple[float, float],
    ratios: tuple[float, float],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute random crops with integer pixel coordinates.

    Parameters
    ----------
    area, ratio
        Uniform draws in [0, 1), `[attempts, ...]`. The first attempt that fits into the image is used. If none fits,
        the result is the largest central crop with an allowed ratio.
    top, left
        Uniform draws in [0, 1), `[...]`, for the position of the crop.
    size
        Height and width of the image, or of each image, as float tensors `[...]`.
    scale
        The range of the crop's area as a share of the image, sampled uniformly.
    ratios
        The range of width / height, sampled log-uniformly.

    Returns
    -------
    tuple of Tensor
        Top, left, height and width `[...]`.
    """
    height, width = size
    pixels = (scale[0] + (scale[1] - scale[0]) * area) * (height * width)
    aspect = torch.exp(math.log(ratios[0]) + (math.log(ratios[1]) - math.log(ratios[0])) * ratio)
    crop_width = torch.round(torch.sqrt(pixels * aspect))
    crop_height = torch.round(torch.sqrt(pixels / aspect))
    fits = (crop_width > 0) & (crop_width <= width) & (crop_height > 0) & (crop_height <= height)
    found = fits.any(0)
    first = fits.to(torch.int32).argmax(0, keepdim=True)

    middle_top, middle_left, middle_height, middle_width = middle_crops(size, ratios)
    crop_width = torch.where(found, crop_width.gather(0, first)[0], middle_width)
    crop_height = torch.where(found, crop_height.gather(0, first)[0], middle_height)
    # A draw has 24 bits and is below 1, so its product with n is below n in float32 too, and the crop stays inside.
    crop_top = torch.where(found, torch.floor(top * (height - crop_height + 1)), middle_top)
    crop_left = torch.where(found, torch.floor(left * (width - crop_width + 1)), middle_left)
    return crop_top, crop_left, crop_height, crop_width


def middle_crops(size: Size, ratios: tuple[float, float]) -> tuple[Edge, Edge, Edge, Edge]:
    """Return top, left, height and width of the largest central crop whose width / height is in the range."""
    height, width = size
    crop_height: Edge
    crop_width: Edge
    if isinstance(height, Tensor) or isinstance(width, Tensor):
        heights, widths = torch.as_tensor(height), torch.as_tensor(width)
        ratio_of_each = (widths / heights).clamp(*ratios)
        crop_width = torch.minimum(widths, torch.round(heights * ratio_of_each)).clamp(min=1)
        crop_height = torch.minimum(heights, torch.round(widths / ratio_of_each)).clamp(min=1)
    else:
        ratio = min(max(width / height, ratios[0]), ratios[1])
        crop_width = float(max(1, min(width, round(height * ratio))))
        crop_height = float(max(1, min(height, round(width / ratio))))
    return (height - crop_height) // 2, (width - crop_width) // 2, crop_height, crop_width


def triangle(distance: Tensor) -> Tensor:
    return (1 - distance.abs()).clamp(min=0)


def cubic(distance: Tensor) -> Tensor:
    """Keys' cubic kernel with a = -1/2, as in Pillow's BICUBIC. It is negative from 1 to 2."""
    x = distance.abs()
    inner = (1.5 * x - 2.5) * x * x + 1
    outer = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, inner, torch.where(x < 2, outer, 0.0))


KERNELS = {"bilinear": triangle, "bicubic": cubic}


def axis_weights(
    first: Tensor, last: Tensor, size: int, out: int, interpolation: str = "bilinear", used: Tensor | None = None
) -> Tensor:
    """Return the matrices of Pillow's antialiased resize along one axis, `[..., out, size]`. Their rows sum to 1.

    The interval from `first` to `last` `[...]` of an axis with `size` pixels becomes `out` pixels. If `last < first`,
    the result is mirrored. As in `Image.resize(box=...)`, pixels just outside the interval contribute at its ends. With
    `used` `[...]`, the image of each sample has only so many of the pixels, and the others have weight 0.
    """
    scale = (last - first)[..., None] / out
    centre = first[..., None] + scale * (torch.arange(out, device=first.device) + 0.5)
    pixel = torch.arange(size, device=first.device) + 0.5
    widening = scale.abs().clamp(min=1.0)[..., None]
    weights = KERNELS[interpolation]((pixel - centre[..., None]) / widening)
    if used is not None:
        weights = weights * (pixel < used[..., None, None])
    return weights / weights.sum(-1, keepdim=True)


def full_axis_weights(size: int, out: int, device: torch.device) -> Tensor:
    """Return the `axis_weights` `[out, size]` that resize the full axis."""
    return axis_weights(torch.zeros((), device=device), torch.full((), float(size), device=device), size, out)


def separable(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Compute rows · image · columnsᵀ for each view.

    Images are `[N, C, H, W]`, rows `[N, V, S, H]`, columns `[N, V, S, W]`, and the result is float32 `[V, N, C, S, S]`.
    The views of an image share one product, so the image is not copied V times.
    """
    n, v, s, h = rows.shape
    c, w = images.shape[1], images.shape[3]
    x = images.transpose(1, 2).to(torch.float32, memory_format=torch.contiguous_format).reshape(n, h, c * w)
    # Autocast would compute the products in bfloat16, which cannot represent the 256 levels of a pixel.
    with torch.autocast(images.device.type, enabled=False):
        x = torch.bmm(rows.reshape(n, v * s, h), x)
        x = torch.bmm(x.view(n * v, s * c, w), columns.reshape(n * v, -1, w).transpose(1, 2))
    return x.view(n, v, s, c, -1).permute(1, 0, 3, 2, 4).contiguous()


def crop_pictures(
    lines: Tensor,
    sizes: Tensor,
    box: tuple[Tensor, Tensor, Tensor, Tensor],
    out: int,
    interpolation: str = "bilinear",
) -> Tensor:
    """Crop and resize pictures of different sizes, float32 `[V, N, C, out, out]`.

    Parameters
    ----------
    lines
        The pictures, uint8 `[N, L, C, W]`, each filled up to the same size. The lines follow the longer side of a
        picture: its rows or, if it is wider than tall, its columns.
    sizes
        Height and width of each picture, float `[N, 2]`.
    box
        Top, bottom, left and right of each crop, `[V, N]`. If right < left, the result is mirrored.
    out
        The side of the result.
    interpolation
        The kernel, `bilinear` or `bicubic`.
    """
    longer, shorter = sizes.amax(1, keepdim=True), sizes.amin(1, keepdim=True)
    is_wide = sizes[:, 1:] > sizes[:, :1]  # [N, 1]
    top, bottom, left, right = (edge.T for edge in box)
    across = torch.where(is_wide, left, top), torch.where(is_wide, right, bottom)  # the edges along the longer side
    along = torch.where(is_wide, top, left), torch.where(is_wide, bottom, right)
    rows = axis_weights(*across, lines.shape[1], out, interpolation, longer)
    columns = axis_weights(*along, lines.shape[3], out, interpolation, shorter)
    block = max(1, BLOCK_BYTES // (4 * lines[0].numel()))  # few pictures are float32 at the same time
    parts = zip(lines.split(block), rows.split(block), columns.split(block), strict=True)
    x = torch.cat([separable(part.transpose(1, 2), *weights) for part, *weights in parts], dim=1)
    return torch.where(is_wide[:, :, None, None], x.transpose(-1, -2), x)


def resize(images: Tensor, out: int) -> Tensor:
    """Resize images `[N, C, H, W]` to float32 `[N, C, out, out]`, with antialiased bilinear interpolation."""
    height, width = images.shape[2:]
    if height == out and width == out:
        return images.to(torch.float32)
    rows = full_axis_weights(height, out, images.device)
    columns = full_axis_weights(width, out, images.device)
    return separable(images, rows.expand(len(images), 1, -1, -1), columns.expand(len(images), 1, -1, -1))[0]


def affine(images: Tensor, degrees: Tensor, shear: Tensor, zoom: Tensor, right: Tensor, down: Tensor) -> Tensor:
    """Zoom, shear along x and rotate about the centre, in this order, and then shift.

    The interpolation is bilinear, and pixels outside the image are black.

    Parameters
    ----------
    images
        `[B, C, S, S]`.
    degrees
        The counter-clockwise rotation in degrees, `[B]`.
    shear
        The shear angle in degrees, `[B]`.
    zoom
        The scale, `[B]`; above 1 enlarges.
    right, down
        The shift as a share of the side, `[B]`.
    """
    b, _, side, _ = images.shape
    angle, slant = torch.deg2rad(degrees), torch.tan(torch.deg2rad(shear))
    cos, sin = torch.cos(angle) / zoom, torch.sin(angle) / zoom
    # Coordinates from -1 to 1, as grid_sample expects. The inverse map finds the source of each output pixel.
    place = (2 * torch.arange(side, device=images.device) + 1) / side - 1
    x = (place - 2 * right[:, None])[:, None, :]
    y = (place - 2 * down[:, None])[:, :, None]
    cos, sin, slant = (value.view(b, 1, 1) for value in (cos, sin, slant))
    source_x = (cos - slant * sin) * x - (sin + slant * cos) * y
    source_y = sin * x + cos * y
    # grid_sample expects the coordinates in the last dimension, where writing them would be slow.
    grid = torch.stack([source_x, source_y], dim=1)
    return F.grid_sample(images, grid.movedim(1, -1), mode="bilinear", padding_mode="zeros", align_corners=False)


def gaussian_weights(sigma: Tensor, size: int, largest_sigma: float) -> Tensor:
    """Return the matrices `[B, size, size]` of a Gaussian blur along one axis, which mirrors at the border pixel.

    `sigma` `[B]` is in pixels. For each sample, the kernel reaches 4 `largest_sigma` (at most size - 1), so its shape
    does not depend on `sigma`.
    """
    radius = min(math.ceil(4 * largest_sigma), size - 1)
    distance = torch.arange(radius + 1, device=sigma.device)
    kernel = torch.exp(-0.5 * (distance / sigma[:, None]) ** 2)
    kernel = kernel / (2 * kernel.sum(1, keepdim=True) - 1)
    kernel = F.pad(kernel, (0, 1))  # the last entry, 0, is for all larger distances

    pixel = torch.arange(size, device=sigma.device)
    out, source = pixel[:, None], pixel[None, :]
    far = radius + 1
    direct = (out - source).abs()
    before = torch.where(source > 0, out + source, far)
    behind = torch.where(source < size - 1, 2 * (size - 1) - out - source, far)
    return sum((kernel[:, taps.clamp(max=far)] for taps in (before, behind)), start=kernel[:, direct.clamp(max=far)])


def blur(images: Tensor, sigma: Tensor, largest_sigma: float) -> Tensor:
    """Blur images `[B, C, S, S]` by a Gaussian with a separate `sigma` `[B]` for each."""
    weights = gaussian_weights(sigma, images.shape[-1], largest_sigma)[:, None]
    return separable(images, weights, weights)[0]


def change_all(change: Callable[[Tensor, Tensor], Tensor], x: Tensor, values: Tensor, chosen: Tensor) -> Tensor:
    """Return `change(x, values)` for the chosen samples of x `[B, C, S, S]`, and x for the others.

    The change is computed for all samples, so that no shape depends on the data.
    """
    return torch.where(chosen.view(-1, 1, 1, 1), change(x, values), x)


def change_some(change: Callable[[Tensor, Tensor], Tensor], x: Tensor, values: Tensor, chosen: Tensor) -> Tensor:
    """Change x in place to the same as `change_all`, to the last bit, and compute only what the chosen samples need."""
    rows = chosen.nonzero().flatten()
    return x.index_copy_(0, rows, change(x.index_select(0, rows), values[rows])) if len(rows) else x
