"""Section 2.2 on images, at reduced scale: errors on random tasks, for labels between classes and one label per image.

There are 120 digits, 12 of each class, in two views. Each class is divided into 1, 2, 4 or 12 parts of equal size, each
with its own label: from 10 labels, the classes, to 120, one for each image.
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from twofold import objectives
from twofold.data.readers.digits import read_digits
from twofold_papers.birth.claims.labels import random_task_errors, small_network
from twofold_papers.birth.claims.setting import stacked
from twofold_papers.verify.claim import Sides, claim

OF_A_CLASS, CLASSES, VIEWS = 12, 10, 2
PARTS = (1, 2, 4, 12)
FEATURES, RIDGE, STEPS, TASKS, SEEDS = 32, 0.01, 200, 300, 3


@dataclass(frozen=True)
class Errors:
    """Ridge errors of features that were learnt with some labels; they are 1 for features that say nothing."""

    random: Tensor  # [TASKS], on random tasks
    classes: Tensor  # [], on the classes of the digits, divided by the variance of these labels


def digit_views() -> tuple[Tensor, Tensor]:
    """Rows [V·N, 64], view by view, and the classes [N]. A view is a shift by at most one pixel, with noise."""
    split, _, _ = read_digits()
    labels = torch.from_numpy(split.labels)
    chosen = torch.cat([torch.nonzero(labels == c)[:OF_A_CLASS, 0] for c in range(CLASSES)])
    images = torch.from_numpy(split.images).squeeze(-1)[chosen].double() / 255
    shifts = torch.randint(-1, 2, (VIEWS * len(chosen), 2)).tolist()
    moved = [image.roll(shift, (0, 1)) for image, shift in zip(images.repeat(VIEWS, 1, 1), shifts, strict=True)]
    views = torch.stack(moved)
    return (views + 0.1 * torch.randn_like(views)).flatten(1), labels[chosen]


@cache
def errors(parts: int, seed: int) -> Errors:
    """Errors after an MLP was trained with the paper's supervised loss; each class has `parts` labels."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        rows, classes = digit_views()
        tasks = torch.stack([torch.randperm(len(classes)) % 2 for _ in range(TASKS)]).double() * 2 - 1
        labels = classes * parts + torch.arange(len(classes)) % parts
        features = small_network(rows, labels.repeat(VIEWS), seed, K=FEATURES, ridge=RIDGE, steps=STEPS)
        on_classes = objectives.ridge_labels(features, classes.repeat(VIEWS), RIDGE).total / (1 - 1 / CLASSES)
        return Errors(random_task_errors(VIEWS, len(classes), features, tasks, RIDGE), on_classes)


def of_seeds(parts: int) -> list[Errors]:
    return [errors(parts, seed) for seed in range(SEEDS)]


@claim(
    "birth",
    "section 2.2, digits",
    "Labels that treat each image as a class have a smaller worst error on random tasks than classes. At reduced "
    "scale: 120 digits in two views, a small MLP with 32 features. Checked: the largest error on 300 random balanced "
    "tasks, for one label per image and for the 10 classes, 3 seeds",
    tolerance=0.0,
)
def one_label_per_image_is_better_in_the_worst_case() -> Sides:
    finest, classes = (stacked([e.random.max() for e in of_seeds(parts)]) for parts in (PARTS[-1], PARTS[0]))
    return Sides(finest, classes, "<")


@claim(
    "birth",
    "section 2.2, digits (mean)",
    "The more labels a class of digits is divided into, the smaller the mean error on random tasks. Checked: the mean "
    "over 300 random balanced tasks, for 1, 2, 4 and 12 labels per class, mean of 3 seeds",
    tolerance=0.0,
)
def finer_labels_have_a_smaller_mean_error() -> Sides:
    means = stacked([stacked([e.random.mean() for e in of_seeds(parts)]).mean() for parts in PARTS])
    return Sides(means[1:], means[:-1], "<")


@claim(
    "birth",
    "section 2.2, digits (price)",
    "The more labels a class of digits is divided into, the larger the error on the classes themselves. Checked: this "
    "error for 1, 2, 4 and 12 labels per class, mean of 3 seeds",
    tolerance=0.0,
)
def finer_labels_are_worse_for_the_classes() -> Sides:
    means = stacked([stacked([e.classes for e in of_seeds(parts)]).mean() for parts in PARTS])
    return Sides(means[1:], means[:-1], ">")
