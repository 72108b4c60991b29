"""Features that are made from images without training: whitened patches and k-means centres (Coates and Ng 2011).

Every patch is normalised, whitened and compared with all centres; the results are averaged over a grid. What differs
from the paper: averages are replaced by their square roots, and a linear map shortens the features and whitens them in
part. Both make nearest neighbours much better and cost no linear accuracy (benchmarks/NOTES.md, "From scratch").

Shapes: N images, C channels, S side of the images, s side of a patch, P = C·s² values of a patch, h positions along a
side, M centres, G cells along a side of the grid, R features.
"""

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional

FLAT = 0.0025  # added to the variance of a patch, so that noise in flat patches stays small; pixels have variance 1
RIDGE = 0.1  # added to the eigenvalues of the patches' covariance, relative to their mean
LEAST = 1e-6  # smaller variances are rounding errors
SAMPLED, ROUNDS = 40_000, 10  # patches and rounds of k-means
MOST_FITTED = 2_000  # images; more hardly change the features
WHITENING = 0.5  # 0: the directions of the pooled features keep their variances; 1: all get the same
BLOCK = 256  # images at a time
CPU_BLOCK = 4  # the same on a CPU; their activations stay in its cache, which is 2.8 times as fast as with 64
MANY_POSITIONS = 48  # along a side; larger images are compared at every second position, and so on


class PatchFeatures(nn.Module):
    """Map normalised images [N, C, S, S] to features [N, R]. `fit` sets all weights; nothing is trained.

    Parameters
    ----------
    channels : int
        C.
    image_size : int
        S. Features of images of another size are possible, unless they are tiny.
    centres : int
        M.
    stride : int, optional
        The distance between positions. By default, it is 1 for images of up to 48 pixels.
    """

    treats_samples_apart = True
    GRID, WIDTH, SIDE = 4, 1024, 6

    filters: Tensor  # [P, C, s, s], the whitening
    shift: Tensor  # [P], the whitened mean of all patches
    centres: Tensor  # [M, P]
    mean: Tensor  # [M·G²], of the pooled features
    projection: Tensor  # [R, M·G²]

    def __init__(self, channels: int, image_size: int, *, centres: int = 256, stride: int | None = None):
        super().__init__()
        self.side = max(1, min(self.SIDE, image_size // 2))
        self.stride = stride or -(-image_size // MANY_POSITIONS)
        self.grid = min(self.GRID, (image_size - self.side) // self.stride + 1)
        values, pooled = channels * self.side**2, centres * self.grid**2
        self.width = self.WIDTH
        self.register_buffer("filters", torch.eye(values).view(values, channels, self.side, self.side))
        self.register_buffer("shift", torch.zeros(values))
        self.register_buffer("centres", torch.zeros(centres, values))
        self.register_buffer("mean", torch.zeros(pooled))
        self.register_buffer("projection", torch.zeros(self.WIDTH, pooled))

    def extra_repr(self) -> str:
        return f"{len(self.centres)} centres of {self.side} × {self.side} pixels → {self.width}"

    def forward(self, images: Tensor) -> Tensor:
        """Compute features [N, R], in float32 also under autocast."""
        device = images.device.type
        # An exported graph must not depend on the number of images. Otherwise blocks keep the memory small.
        size = CPU_BLOCK if device == "cpu" else BLOCK
        blocks = [images] if torch.jit.is_tracing() or torch.compiler.is_compiling() else images.split(size)
        # Without autocast there is no context to leave, so that exported graphs have none.
        with torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext():
            return torch.cat([(self.pooled(block.float()) - self.mean) @ self.projection.T for block in blocks])

    def pooled(self, images: Tensor) -> Tensor:
        """Return the square roots of the averages of the triangle activation over the cells of the grid, [N, M·G²]."""
        patches = self.whitened(images)
        squares = patches.square().sum(1, keepdim=True) + self.centres.square().sum(1)[:, None, None]
        products = functional.conv2d(patches, self.centres[:, :, None, None])
        distances = (squares - 2 * products).clamp(min=0).sqrt()
        activation = (distances.mean(1, keepdim=True) - distances).clamp(min=0)
        # Cells overlap if the positions cannot be divided equally. All cells have the same size, also when exported.
        positions = activation.shape[-1]
        stride = positions // self.grid
        cells = functional.avg_pool2d(activation, positions - (self.grid - 1) * stride, stride)
        return cells.flatten(1).sqrt()

    def whitened(self, images: Tensor) -> Tensor:
        """Return the normalised and whitened patches at all positions, [N, P, h, h]."""
        mean, scale = self.normalisation(images)
        # The whitening is linear, so the mean is subtracted and the scale applied after the convolution.
        responses = functional.conv2d(images, self.filters, stride=self.stride)
        flat = self.filters.sum((1, 2, 3))[:, None, None]
        return (responses - mean * flat) * scale - self.shift[:, None, None]

    def normalisation(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean of each patch and the factor that gives it variance 1, [N, 1, h, h]."""
        mean = functional.avg_pool2d(images.mean(1, keepdim=True), self.side, self.stride)
        squares = functional.avg_pool2d(images.square().mean(1, keepdim=True), self.side, self.stride)
        return mean, ((squares - mean.square()).clamp(min=0) + FLAT).rsqrt()

    @torch.no_grad()
    def fit(self, images: Tensor, transform: Callable[[Tensor], Tensor], *, seed: int = 0) -> None:
        """Set all weights from training images. The result depends only on the images and the seed.

        Parameters
        ----------
        images : Tensor
            uint8 images [n, C, S, S].
        transform : callable
            Normalises the images.
        seed : int
            Seed of the patches that are sampled and of the first centres.
        """
        generator = torch.Generator().manual_seed(seed)
        if len(images) > MOST_FITTED:
            images = images[torch.linspace(0, len(images) - 1, MOST_FITTED).round().long().to(images.device)]
        blocks = [transform(block).float().cpu() for block in images.split(CPU_BLOCK)]
        self.fit_centres(torch.cat(blocks), generator)
        self._fit_projection(torch.cat([self.pooled(block) for block in blocks]), generator)

    @torch.no_grad()
    def fit_centres(self, images: Tensor, generator: torch.Generator) -> None:
        """Set all weights from normalised images [n, C, S, S], except for the map of the pooled features."""
        patches = sample_patches(images, self.side, generator)
        centred = patches - patches.mean(1, keepdim=True)
        patches = centred / (centred.square().mean(1, keepdim=True) + FLAT).sqrt()
        mean = patches.mean(0)
        values, vectors = torch.linalg.eigh(torch.cov(patches.T).view(len(mean), -1).double())
        ridge = (RIDGE * values.mean()).clamp(min=LEAST)
        whitening = ((vectors * (values.clamp(min=0) + ridge).rsqrt()) @ vectors.T).float()
        self.filters.copy_(whitening.view_as(self.filters))
        self.shift.copy_(whitening @ mean)
        self.centres.copy_(k_means((patches - mean) @ whitening, len(self.centres), generator))

    def _fit_projection(self, pooled: Tensor, generator: torch.Generator) -> None:
        self.mean.copy_(pooled.mean(0))
        self.projection.copy_(partial_whitening(pooled - self.mean, self.width, WHITENING, generator))


def sample_patches(images: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """Return patches [SAMPLED, C·s²] at random places of random images [n, C, S, S]."""
    rows = torch.randint(len(images), (SAMPLED,), generator=generator)
    top, left = (torch.randint(size - side + 1, (SAMPLED,), generator=generator) for size in images.shape[2:])
    offsets = torch.arange(side)
    found = images[rows[:, None, None], :, (top[:, None] + offsets)[:, :, None], (left[:, None] + offsets)[:, None]]
    return found.permute(0, 3, 1, 2).flatten(1)


def k_means(points: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return the centres [count, P] of points [n, P] after some rounds of Lloyd's algorithm."""
    centres = points[torch.randperm(len(points), generator=generator)[:count]]
    for _ in range(ROUNDS):
        offsets = centres.square().sum(1)
        nearest = torch.cat([(offsets - 2 * block @ centres.T).argmin(1) for block in points.split(10_000)])
        sums = torch.zeros_like(centres).index_add_(0, nearest, points)
        counts = torch.bincount(nearest, minlength=len(centres)).unsqueeze(1)
        centres = torch.where(counts > 0, sums / counts.clamp(min=1), centres)
    return centres


def partial_whitening(rows: Tensor, width: int, power: float, generator: torch.Generator) -> Tensor:
    """Return a map [width, K] of centred rows [n, K] to their first principal components, rotated at random.

    A component with variance v gets a variance in proportion to v^(1 − power). The rotation gives all features about
    the same variance, which is 1 in the mean. Otherwise a linear probe, which standardises features, would whiten the
    components completely.
    """
    values, vectors = torch.linalg.eigh((rows @ rows.T).double())
    values, vectors = values.flip(0)[:width], vectors.flip(1)[:, :width]
    if values[0] <= LEAST:  # all rows are the same
        return rows.new_zeros(width, rows.shape[1])
    kept = values > LEAST * values[0]
    values, vectors = values[kept], vectors[:, kept]
    directions = rows.double().T @ (vectors / values.sqrt())  # [K, r], orthonormal
    scales = (values / values.sum()).pow(-power / 2)
    variance = (values * scales.square()).sum() / len(rows) / width  # of a feature, in the mean
    rotation = torch.linalg.qr(torch.randn(width, len(values), generator=generator, dtype=torch.float64))[0]
    return ((rotation * (scales / variance.sqrt())) @ directions.T).float()
