"""Choose the held-out images if the data have no test set. A hash of their indices decides, the same for every seed.

`data/load.py` decodes the parts. `training_rows` returns the training images before they are decoded.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from twofold import counter
from twofold.data.item_split import UNKNOWN
from twofold.data.source import Source, Split


@dataclass(frozen=True)
class SplitPart:
    """The rows of a split that form one store. `first` is the stable index of the split's row 0."""

    name: str
    split: Split
    rows: np.ndarray
    first: int


def hold_out(index: Tensor, labels: Tensor, fraction: float) -> Tensor:
    """Return which samples are held out, bool [n]. The share of each class is right to within one image.

    The samples are sorted by class and, within a class, by a hash of the index. Every (1/fraction)-th sample is held
    out, so the total share is right too. Each class keeps at least one training image.
    """
    order = counter.permutation(counter.key(index, "hold-out"))
    order = order[torch.argsort(labels[order], stable=True)]
    place = torch.arange(len(index), dtype=torch.float64)
    held = torch.empty(len(index), dtype=torch.bool)
    held[order] = torch.floor((place + 1) * fraction) > torch.floor(place * fraction)
    sizes = torch.bincount(labels)
    emptied = (sizes > 0) & (torch.bincount(labels[held], minlength=len(sizes)) == sizes)
    first = order[(sizes.cumsum(0) - sizes)[emptied]]
    held[first] = False
    return held


def hold_out_groups(index: Tensor, labels: Tensor, groups: Tensor, fraction: float) -> Tensor:
    """Hold out whole groups, so that no patient or video is in both sets. An image of unknown group is a group itself.

    The groups are sorted by the class of their first image and then by a hash. Each group is held out if that brings
    the share of images so far closer to the fraction. The total is right to within half of the largest group.
    """
    alone = torch.arange(len(groups)) + int(groups.max()) + 1
    unit = torch.unique(torch.where(groups == UNKNOWN, alone, groups), return_inverse=True)[1]
    sizes = torch.bincount(unit)
    first = torch.full_like(sizes, int(index.max())).scatter_reduce_(0, unit, index, "amin")
    label = torch.zeros_like(sizes)
    label[unit[index == first[unit]]] = labels[index == first[unit]]
    order = counter.permutation(counter.key(first, "hold-out"))
    order = order[torch.argsort(label[order], stable=True)]
    held = torch.zeros(len(sizes), dtype=torch.bool)
    seen = taken = 0
    for number in order.tolist():
        size = int(sizes[number])
        seen += size
        if taken + size / 2 <= fraction * seen:
            held[number] = True
            taken += size
    for name in range(int(labels.max()) + 1):  # each class keeps at least one training group
        there = torch.unique(unit[labels == name])
        if len(there) and bool(held[there].all()):
            held[there[torch.argmin(first[there])]] = False
    return held[unit]


def training_rows(source: Source, test_fraction: float, unlabelled_fraction: float = 0.0) -> np.ndarray:
    """Return the rows of `source.train` that are for training. Some may turn out to be unreadable when decoded."""
    return parts_of(source, test_fraction, unlabelled_fraction=unlabelled_fraction)[0].rows


def count_samples(source: Source, test_fraction: float, unlabelled_fraction: float = 0.0) -> int:
    """Return the number of training samples: of objects, if some have several images, otherwise of images."""
    rows = training_rows(source, test_fraction, unlabelled_fraction)
    objects = None if source.train.objects is None else source.train.objects[rows]
    return len(rows) if objects is None else len(np.unique(objects[objects >= 0])) + int((objects < 0).sum())


def parts_of(
    source: Source, test_fraction: float, rest: bool = False, unlabelled_fraction: float = 0.0
) -> list[SplitPart]:
    """Split the rows of a source into the training set, the test set and, if `rest` is true, the rest.

    Without labels and without a test set, `unlabelled_fraction` of the images is held out. If some images have labels,
    images without a label are never held out, because they cannot be scored. If other images of their group are held
    out, they must not be used for training either. These images form the rest.
    """
    rows = source.train.readable()
    if source.test is not None:
        test = SplitPart("test", source.test, source.test.readable(), len(source.train))
        return [SplitPart("train", source.train, rows, 0), test]
    if source.held_out is not None:
        labels = source.train.labels
        known = np.ones(len(rows), bool) if labels is None else labels[rows] != UNKNOWN
        chosen, others = source.held_out[rows] & known, source.held_out[rows] & ~known & rest
        return _divide(source.train, rows, chosen, others, rest)
    labelled = source.train.labels is not None and source.labelled
    fraction = test_fraction if labelled else unlabelled_fraction
    if fraction == 0:
        return [SplitPart("train", source.train, rows, 0)]
    labels = source.train.labels if labelled else np.zeros(len(source.train), np.int64)
    assert labels is not None
    known = labels[rows] != UNKNOWN
    classes = torch.from_numpy(labels[rows[known]])
    held, left_out = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
    index = torch.from_numpy(rows[known])
    if source.train.groups is None or not known.any():
        held[known] = hold_out(index, classes, fraction).numpy()
    else:
        groups = source.train.groups[rows]
        held[known] = hold_out_groups(index, classes, torch.from_numpy(groups[known]), fraction).numpy()
        left_out = ~held & (groups != UNKNOWN) & np.isin(groups, groups[held])
    return _divide(source.train, rows, held, left_out, rest)


def _divide(split: Split, rows: np.ndarray, test: np.ndarray, left_out: np.ndarray, rest: bool) -> list[SplitPart]:
    chosen = {"train": ~test & ~left_out, "test": test} | ({"rest": left_out} if rest and left_out.any() else {})
    return [SplitPart(name, split, rows[which], 0) for name, which in chosen.items()]
