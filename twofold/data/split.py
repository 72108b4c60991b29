"""Which images are held out, where the data do not say: a hash of their numbers decides, the same for every seed."""

import torch
from torch import Tensor

from twofold import counter
from twofold.data.items import UNKNOWN


def hold_out(index: Tensor, labels: Tensor, fraction: float) -> Tensor:
    """Which samples are for the test, bool [n]: the same for every seed, in each class its share within one image.

    Sorted by class and, inside it, by a hash of the index, every (1/fraction)-th sample is held out, so that the shares
    are right in total too. A class that would be left without a training image keeps one.
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
    """The same by whole groups, so that no patient or video is on both sides; an image of unknown group is alone.

    In the order of the class of their first image, then of a hash, a group is held out where that brings the share of
    images so far nearer to the fraction: right within half of the largest group.
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
    for name in range(int(labels.max()) + 1):  # a class that would be left without a training image keeps a group
        there = torch.unique(unit[labels == name])
        if len(there) and bool(held[there].all()):
            held[there[torch.argmin(first[there])]] = False
    return held[unit]
