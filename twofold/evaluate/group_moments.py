"""The covariances of features within and between groups, accumulated block by block.

Shapes: V views, N images of a block, K features, G groups.
"""

import torch
from torch import Tensor


class GroupMoments:
    """The mean of features and their covariances: T (total), B (between groups) and W = T − B (within groups).

    A group is all views of one image, or all views of the images with the same group number. Sums are kept in float64.
    The memory does not depend on the number of images: 2K² numbers, and K for each numbered group.

    Parameters
    ----------
    groups : int
        The number of numbered groups.
    """

    def __init__(self, groups: int = 0):
        self.groups, self.rows = groups, 0

    @torch.no_grad()
    def add(self, features: Tensor, numbers: Tensor | None = None) -> None:
        """Add all views of some images.

        Parameters
        ----------
        features : Tensor [V, N, K]
            The features of V views of N images.
        numbers : int64 Tensor [N], optional
            The group of each image; negative, as without numbers, for an image that is its own group.
        """
        wide = (features.cpu() if features.device.type == "mps" else features).double()  # MPS has no float64
        V, N, K = wide.shape
        if N == 0:
            return
        if self.rows == 0:
            # Sums of deviations from a value near the mean keep the digits that sums of squares would lose.
            self.origin = wide.mean((0, 1))
            self.sum, self.products, self.own = wide.new_zeros(K), wide.new_zeros(K, K), wide.new_zeros(K, K)
            self.group_sums, self.group_rows = wide.new_zeros(self.groups, K), wide.new_zeros(self.groups)
        wide = wide - self.origin
        flat, sums = wide.flatten(0, 1), wide.sum(0)
        self.rows += V * N
        self.sum += flat.sum(0)
        self.products.addmm_(flat.T, flat)
        numbers = torch.full((N,), -1) if numbers is None else numbers
        numbers = numbers.to(wide.device)
        alone = sums[numbers < 0]
        self.own.addmm_(alone.T, alone, alpha=1 / V)
        grouped = numbers[numbers >= 0]
        self.group_sums.index_add_(0, grouped, sums[numbers >= 0])
        self.group_rows += V * torch.bincount(grouped, minlength=self.groups).to(wide)

    @property
    def mean(self) -> Tensor:
        """The mean of all features, [K]."""
        return self.origin + self.sum / self.rows

    @property
    def total(self) -> Tensor:
        """T, [K, K]."""
        mean = self.sum / self.rows
        return self.products / self.rows - torch.outer(mean, mean)

    @property
    def between(self) -> Tensor:
        """B, [K, K]: the covariance of the means of the groups, each weighted by its number of rows."""
        mean, scaled = self.sum / self.rows, self.group_sums / self.group_rows.clamp_min(1).sqrt()[:, None]
        return (self.own + scaled.T @ scaled) / self.rows - torch.outer(mean, mean)

    @property
    def within(self) -> Tensor:
        """W = T − B, [K, K]."""
        return self.total - self.between
