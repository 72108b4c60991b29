"""The covariances of features within and between groups, or neighbours in a graph, accumulated block by block.

Shapes: V views, N images of a block, n images in all, K features, G groups.
"""

from collections.abc import Callable, Iterator

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


BLOCK = 1024  # images between which the graph is computed at a time


class GraphMoments(GroupMoments):
    """The same for a graph with weights: B = Sᵀ D⁻¹ᐟ² G D⁻¹ᐟ² S/(V·rows) minus the product of the means.

    S[n, K] are the sums over the views of each image, and D the degrees of G. For a graph of groups, this is the
    covariance of the means of the groups. The memory is that of S in addition.

    Parameters
    ----------
    related : callable
        (index[N]) → G[N, N], the non-negative weights between images.
    """

    def __init__(self, related: Callable[[Tensor], Tensor]):
        super().__init__()
        self.related = related
        self.indices: list[Tensor] = []
        self.sums: list[Tensor] = []

    @torch.no_grad()
    def add(self, features: Tensor, numbers: Tensor | None = None) -> None:
        """Add all views [V, N, K] of some images. `numbers` are their indices in the graph, int64 [N]."""
        super().add(features)
        if features.shape[1]:
            assert numbers is not None
            wide = (features.cpu() if features.device.type == "mps" else features).double()
            self.views = len(features)
            self.indices.append(numbers)
            self.sums.append(wide.sum(0) - len(features) * self.origin)

    @property
    def between(self) -> Tensor:
        """B, [K, K]."""
        index, sums = torch.cat(self.indices), torch.cat(self.sums)
        degree = sums.new_zeros(len(index))
        for rows, columns, weights in self._blocks(index):
            degree[rows] += weights.sum(1)
            if rows is not columns:
                degree[columns] += weights.sum(0)
        scaled = sums / degree.clamp_min(torch.finfo(degree.dtype).tiny).sqrt()[:, None]
        products = sums.new_zeros(sums.shape[1], sums.shape[1])
        for rows, columns, weights in self._blocks(index):
            part = scaled[rows].T @ weights @ scaled[columns]
            products += part if rows is columns else part + part.T
        mean = self.sum / self.rows
        return products / (self.views * self.rows) - torch.outer(mean, mean)

    def _blocks(self, index: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield rows, columns and the weights between them, for each pair of blocks once."""
        blocks = torch.arange(len(index)).split(BLOCK)
        for number, rows in enumerate(blocks):
            yield rows, rows, self._weights(index[rows])
            for columns in blocks[number + 1 :]:
                both = self._weights(index[torch.cat([rows, columns])])
                yield rows, columns, both[: len(rows), len(rows) :]

    def _weights(self, index: Tensor) -> Tensor:
        found = self.related(index).double().to(self.sums[0].device)
        return (found + found.T) / 2
