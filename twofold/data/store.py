"""`ImageStore`: the decoded images of one split, on the GPU if they fit, otherwise in host memory or a mapped file.

`data/load.py` makes it. Probes and reports take its images, which are squares of `image_size`. The loader takes batches
of its `crop_source`: larger pictures with the whole aspect ratio if there are any, otherwise the same images.

In shapes, n is the number of images, C the number of channels, H the height and W the width.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from twofold.data.file_names import FileNames
from twofold.data.objects import Objects
from twofold.data.pictures import CropSource, Pictures, gather_batch
from twofold.device import DEVICE_SHARE, free_memory

CPU = torch.device("cpu")
BLOCK_BYTES = 2**26
LEAST_STD = 1 / 255  # one grey level, so that a constant channel is not divided by 0


@dataclass(frozen=True, eq=False)
class ImageStore:
    """The decoded images of a split, with their labels, indices and files."""

    images: Tensor  # uint8 [n, C, H, W], read-only
    labels: Tensor | None  # int64 [n], −1 for an image without a label
    index: Tensor  # int64 [n], ascending: the stable index of each image in its source
    files: FileNames | None = None  # paths below the source's folder
    groups: Tensor | None = None  # int64 [n], −1 for an image without a group; on the host
    device: torch.device = CPU  # the device on which `take` returns images
    pictures: Pictures | None = None  # of the same n images
    objects: Objects | None = None  # if some objects have several images
    features: Tensor | None = None  # float32 [n, K] by another encoder, for graphs
    neighbours: Tensor | None = None  # int64 [n, k], the rows of the nearest images by these features (of `samples`)
    graph_encoder: str = ""  # a hash of the encoder that the features and neighbours come from

    def __len__(self) -> int:
        return len(self.images)

    @property
    def crop_source(self) -> CropSource:
        """What random crops are taken from."""
        return self.images if self.pictures is None else self.pictures

    @property
    def labels_known(self) -> int:
        """The number of images that have a label."""
        return 0 if self.labels is None else int((self.labels >= 0).sum())

    def labelled(self) -> "ImageStore":
        """Return the images that have a label, for probes."""
        if self.labels is None or bool((self.labels >= 0).all()):
            return self
        rows = torch.nonzero(self.labels >= 0).flatten()
        here = rows.to(self.images.device)
        return replace(
            self,
            images=self.images.index_select(0, here),
            labels=self.labels[rows],
            index=self.index[rows.to(self.index.device)],
            files=None if self.files is None else self.files.take(rows.cpu().numpy()),
            groups=None if self.groups is None else self.groups[rows.cpu()],
            objects=None,
            pictures=None,  # probes do not take crops
            features=None,
            neighbours=None,
        )

    def samples(self) -> "ImageStore":
        """Return the samples of training: the first image of each object. Without objects, these are all images."""
        if self.objects is None:
            return self
        rows = self.objects.first
        here = rows.to(self.images.device)
        return replace(
            self,
            images=self.images.index_select(0, here),
            labels=None if self.labels is None else self.labels[rows.to(self.labels.device)],
            index=self.index[rows.to(self.index.device)],
            files=None if self.files is None else self.files.take(rows.cpu().numpy()),
            groups=None if self.groups is None else self.groups[rows],
            objects=None,
            pictures=None,
            features=None if self.features is None else self.features[rows],
        )

    def place(self, device: torch.device | str) -> "ImageStore":
        """Return a store for a device. Pictures and images move there if they fit into a share of its free memory."""
        device = torch.device(device)
        if device.type == "cpu":
            return self
        room = DEVICE_SHARE * free_memory(device)
        pictures, images = self.pictures, self.images
        if pictures is not None:  # before the images, because each step needs them
            fits = pictures.nbytes <= room
            room -= pictures.nbytes if fits else 0
            pictures = pictures.place(device, _moved(pictures.lines, device) if fits else pictures.lines)
        if images.nbytes <= room:
            images = _moved(images, device)
        labels = None if self.labels is None else self.labels.to(device)
        return replace(
            self, images=images, labels=labels, index=self.index.to(device), device=device, pictures=pictures
        )

    def take(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the images and labels of int64 rows, on `device`.

        If the rows are on the same device as the images, the host does not wait for the device.
        """
        images = self._gathered(self.images, rows)
        if self.labels is None:
            return images, None
        return images, self.labels.index_select(0, rows.to(self.labels.device, non_blocking=True))

    def take_crop_source(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return what random crops of these rows are taken from, on `device`; of pictures, also the sizes."""
        sizes = None if self.pictures is None else self.pictures.sizes.index_select(0, rows.to(self.index.device))
        return self._gathered(self.crop_source, rows), sizes

    def _gathered(self, source: CropSource, rows: Tensor) -> Tensor:
        # From pinned memory, the copy overlaps with the computation on the device.
        pinned = self.device.type == "cuda" and source.device.type != "cuda"
        shape = (len(rows), *source.shape[1:])
        gathered = torch.empty(shape, dtype=torch.uint8, device=source.device, pin_memory=pinned)
        return gather_batch(source, rows.to(source.device), gathered).to(self.device, non_blocking=pinned)

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation of each channel, float32 [C], for pixels from 0 to 1.

        This method computes them from the histogram of byte values, which is exact for any number of images.
        """
        channels = range(self.images.shape[1])
        counts = torch.zeros(len(channels), 256, dtype=torch.int64, device=self.images.device)
        for rows in _blocks(self.images):
            for channel in channels:
                counts[channel] += torch.bincount(self.images[rows, channel].flatten(), minlength=256)
        share = counts.cpu().to(torch.float64) / (self.images.numel() // len(channels))
        value = torch.arange(256, dtype=torch.float64) / 255
        mean = share @ value
        std = (share * (value - mean[:, None]).square()).sum(1).sqrt().clamp(min=LEAST_STD)
        return mean.float(), std.float()


def _moved(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device in blocks, because pages of a mapped file are read at the same time."""
    moved = torch.empty_like(tensor, device=device)
    for rows in _blocks(tensor):
        moved[rows].copy_(tensor[rows])
    return moved


def _blocks(tensor: Tensor) -> Iterator[slice]:
    rows = max(1, BLOCK_BYTES // tensor[0].nbytes)
    return (slice(start, start + rows) for start in range(0, len(tensor), rows))


def readonly_tensor(array: np.ndarray) -> Tensor:
    """Return a tensor that shares the memory of a read-only array, such as a mapped file."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)
