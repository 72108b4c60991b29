"""Samples with several images: the files of one object. The views of a sample are drawn from its images.

Readers state the object of each row, `ImageStore` has the `Objects` of its rows, and `Loader` chooses the image of each
view. Evaluations use all images.

In shapes, n is the number of images, m the number of objects, N the size of a batch and F the number of views.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from twofold import counter

PURPOSE = "object.file"


@dataclass(frozen=True, eq=False)
class Objects:
    rows: Tensor  # int64 [n], the images by their object, in the order of the store within an object
    start: Tensor  # int64 [m], where the images of an object start in `rows`
    count: Tensor  # int64 [m], the number of its images
    of_row: Tensor  # int64 [n], the object of each image

    @staticmethod
    def of(numbers: np.ndarray) -> Objects | None:
        """Return the objects of images with these numbers, in the order of their first images; None if all differ.

        A negative number means that the image is an object of its own.
        """
        alone = numbers.max(initial=0) + 1 + np.arange(len(numbers))
        named = np.where(numbers < 0, alone, numbers)
        values, first, place, count = np.unique(named, return_index=True, return_inverse=True, return_counts=True)
        if len(values) == len(numbers):
            return None
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        of_row, count = rank[place], count[order]
        tensors = np.argsort(of_row, kind="stable"), count.cumsum() - count, count, of_row
        return Objects(*(torch.from_numpy(part.astype(np.int64)) for part in tensors))

    def __len__(self) -> int:
        return len(self.start)

    @property
    def first(self) -> Tensor:
        """The first image of each object, int64 [m], ascending. Its index and label are those of the object."""
        return self.rows.index_select(0, self.start)

    def to(self, device: torch.device | str) -> Objects:
        return replace(self, **{name: part.to(device) for name, part in vars(self).items()})

    def choose(self, chosen: Tensor, index: Tensor, step: Tensor | int, seed: int, views: int) -> Tensor:
        """Return an image for each view of these objects `[N]`, int64 `[N, F]`.

        The images of an object are drawn without replacement; with more views than images, they repeat in this order.
        The draws are hashes of the seed, the step and the object's stable index `[N]`, so they do not depend on the
        number of processes or on resuming.
        """
        count = self.count.index_select(0, chosen)
        places: list[Tensor] = []
        for view in range(views):
            draw = counter.uniform(counter.key(seed, step, index, view, PURPOSE, device=index.device))
            rest = (count - view).clamp(min=1)
            place = (draw * rest).long().minimum(rest - 1)
            if places:
                for taken in torch.stack(places).sort(dim=0).values.unbind():
                    place = place + (place >= taken)  # skips the images that are taken
                earlier = torch.stack(places).gather(0, torch.remainder(view, count)[None].clamp(max=view - 1))[0]
                place = torch.where(count <= view, earlier, place)
            places.append(place)
        start = self.start.index_select(0, chosen)
        return self.rows.index_select(0, (start + torch.stack(places)).flatten()).view(views, -1).T.contiguous()
