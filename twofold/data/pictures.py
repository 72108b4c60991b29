"""`Pictures`: training images with their whole aspect ratio, larger than `image_size`, from which crops are taken.

An `ImageStore` has them next to its squares. The loader and the prefetcher take batches with `gather_batch`, from
pictures as from a tensor [n, L, C, W].

In shapes, n is the number of pictures, l that of all lines, L the largest number of lines of a picture, C the number of
channels and W the length of a line. Lines follow the longer side of a picture (see `decode.Picture`).
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from twofold.data.gather import gather_rows
from twofold.data.picture_cache import PictureArray


@dataclass(frozen=True, eq=False)
class Pictures:
    lines: Tensor  # uint8 [l, C, W], read-only
    first: Tensor  # int64 [n], the first line of each picture; on the device of the lines
    last: Tensor  # int64 [n], the last line
    sizes: Tensor  # int64 [n, 2], height and width; on the device of the batches
    height: int  # L

    @staticmethod
    def of(array: PictureArray, lines: Tensor) -> "Pictures":
        """Return the pictures of an array whose lines are also a tensor."""
        sizes, ends = torch.from_numpy(array.sizes.astype("int64")), torch.from_numpy(array.ends)
        longer = sizes.amax(dim=1)
        return Pictures(lines, ends - longer, ends - 1, sizes, int(longer.max()))

    def __len__(self) -> int:
        return len(self.first)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(n, L, C, W), the shape of a batch of all pictures."""
        return len(self), self.height, *self.lines.shape[1:]

    @property
    def device(self) -> torch.device:
        """The device of the lines."""
        return self.lines.device

    @property
    def nbytes(self) -> int:
        return self.lines.nbytes

    def lines_of(self, rows: Tensor) -> Tensor:
        """Return L lines for each row, int64 [N·L]. The last line is repeated after the end of a shorter picture."""
        lines = self.first.index_select(0, rows)[:, None] + torch.arange(self.height, device=rows.device)
        return torch.minimum(lines, self.last.index_select(0, rows)[:, None]).flatten()

    def place(self, device: torch.device, lines: Tensor) -> "Pictures":
        """Return pictures for batches on a device. The lines are those of these pictures, on any device."""
        first, last = self.first.to(lines.device), self.last.to(lines.device)
        return replace(self, lines=lines, first=first, last=last, sizes=self.sizes.to(device))


CropSource = Tensor | Pictures  # what crops are taken from: squares uint8 [n, C, H, W], or pictures


def gather_batch(source: CropSource, rows: Tensor, out: Tensor) -> Tensor:
    """Write squares or pictures to `out`, uint8 [N, C, H, W] or [N, L, C, W], which is on the same device."""
    if isinstance(source, Pictures):
        gather_rows(source.lines, source.lines_of(rows), out.flatten(0, 1))
        return out
    return gather_rows(source, rows, out)
