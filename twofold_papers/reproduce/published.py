"""Published numbers, by data set, network and number of epochs, and the choice of the one that belongs to a run.

A row of a table states its numbers by column. `published` makes the numbers of one length for several data sets:

    Row(
        "InfoNCE",
        "contrastive",
        published={
            LINEAR.title: [
                *published({"cifar10": (84.06, 0.30), "cifar100": (55.70, 0.37)}, epochs=100),
                *published({"cifar10": (87.63, 0.13), "cifar100": (59.71, 0.36)}, epochs=300),
                *published({"cifar10": (86.39, 0.16)}, epochs=100, encoder="resnet50"),
            ]
        },
    )

A number is a mean, or a pair of a mean and a standard deviation. State the data set and the network of every number:
a number without them counts for the data set and the network of the row itself.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Number = float | tuple[float, float]

TITLES = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "stl10": "STL-10",
    "tiny-imagenet": "Tiny-ImageNet",
    "imagenet100": "ImageNet-100",
    "imagenet": "ImageNet",
    "mnist": "MNIST",
    "mnist-on-cifar": "MNIST-on-CIFAR",
    "resnet18": "ResNet-18",
    "resnet50": "ResNet-50",
}


def title_of(name: str) -> str:
    """The title of a data set or of a network; the name itself if the papers do not use it."""
    return TITLES.get(name, name)


@dataclass(frozen=True)
class Published:
    """A published number and what it was measured on. None for data and network: those of the row.

    `epochs` is None if the paper does not state after how many epochs the number was measured.
    """

    value: float
    sd: float | None = None
    epochs: int | None = None
    data: str | None = None
    encoder: str | None = None
    note: str = ""


@dataclass(frozen=True)
class Conditions:
    """What a run is trained on: data set, network and number of epochs."""

    data: str
    encoder: str
    epochs: int


def published(
    numbers: Mapping[str, Number], *, epochs: int | None = None, encoder: str = "resnet18", note: str = ""
) -> list[Published]:
    """Published numbers by data set, all with the same network and the same number of epochs."""
    found = []
    for data, number in numbers.items():
        value, sd = number if isinstance(number, tuple) else (number, None)
        found.append(Published(value, sd, epochs, data, encoder, note))
    return found


def number_for(numbers: Sequence[Published], run: Conditions, own: Conditions) -> Published | None:
    """The published number to show next to a run, or None if the paper has none.

    It is for the same data set and the same network as the run. If there are several, the one with the nearest number
    of epochs counts. `own` are the conditions of the row as the table states them. If the table itself uses another
    data set or another network than the paper, then a run with the table's own has the nearest published number,
    which `label` describes.
    """
    fitting = [each for each in numbers if (each.data or own.data, each.encoder or own.encoder) == at(run)]
    if not fitting and at(run) == at(own):
        fitting = list(numbers)
    return min(fitting, key=lambda each: distance(each, run, own), default=None)


def at(conditions: Conditions) -> tuple[str, str]:
    return conditions.data, conditions.encoder


def distance(number: Published, run: Conditions, own: Conditions) -> tuple[bool, bool, float]:
    other_data = (number.data or own.data) != run.data
    other_network = (number.encoder or own.encoder) != run.encoder
    known = number.epochs is not None and number.epochs > 0 and run.epochs > 0
    return other_data, other_network, abs(math.log(number.epochs / run.epochs)) if known and number.epochs else 0.0


def label(number: Published, run: Conditions, own: Conditions) -> str:
    """How the conditions of a published number differ from those of a run; empty if they are the same."""
    parts = [title_of(number.data or own.data)] * ((number.data or own.data) != run.data)
    parts += [title_of(number.encoder or own.encoder)] * ((number.encoder or own.encoder) != run.encoder)
    parts += [f"{number.epochs} epochs"] * (number.epochs not in (None, run.epochs))
    return ", ".join([*parts, *[number.note] * bool(number.note)])
