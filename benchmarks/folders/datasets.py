"""The six folders of the yardstick, as files on disk, split by a seed.

Every row of the table reads the same files that a user would have: one sub-folder per class.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from twofold.data.load import load_data
from twofold.data.open import open_source
from twofold.data.source import Data

HELD_OUT = 0.2  # of the images of each class: for tests where there is no official test set, and for validation


@dataclass(frozen=True)
class Split:
    """Two folders with the same classes: encoders are trained and probes are fitted on `fit`, and scored on `score`."""

    name: str
    seed: int
    fit: Path
    score: Path


@dataclass(frozen=True)
class Pictures:
    """Named pictures of a class. A picture is a file or an array [H, W] or [H, W, 3]."""

    classes: list[str]
    names: list[str]
    pictures: list[Path | np.ndarray]

    def __len__(self) -> int:
        return len(self.names)

    def some(self, rows: np.ndarray) -> "Pictures":
        return Pictures(*([column[row] for row in rows] for column in (self.classes, self.names, self.pictures)))

    def divided(self, generator: np.random.Generator) -> tuple["Pictures", "Pictures"]:
        """Hold out a fifth of each class at random."""
        kept, held = [], []
        for name in sorted(set(self.classes)):
            rows = generator.permutation([row for row, of in enumerate(self.classes) if of == name])
            count = max(1, round(HELD_OUT * len(rows)))
            held += rows[:count].tolist()
            kept += rows[count:].tolist()
        return self.some(np.sort(kept)), self.some(np.sort(held))

    def write(self, folder: Path) -> None:
        for name, file, picture in zip(self.classes, self.names, self.pictures, strict=True):
            target = folder / name / file
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(picture, Path):
                target.symlink_to(picture.resolve())
            else:
                Image.fromarray(picture).save(target)


def split(name: str, sources: Path, work: Path, seed: int, part: str) -> Split:
    """Write the folders of a data set and a seed, unless they exist.

    With `part` "validation", the test images are not used: a fifth of the training images takes their place.
    """
    folder = work / f"{name}-{part}-seed{seed}"
    if not (folder / "complete").exists():
        generator = np.random.default_rng([seed, len(name)])
        fit, score = FOLDERS[name](sources, generator)
        if part == "validation":
            fit, score = fit.divided(generator)
        fit.write(folder / "fit")
        score.write(folder / "score")
        (folder / "complete").touch()
    return Split(name, seed, folder / "fit", folder / "score")


def flowers(sources: Path, generator: np.random.Generator) -> tuple[Pictures, Pictures]:
    files = sorted((sources / "flowers17").glob("*/*.jpg"))
    return Pictures([f.parent.name for f in files], [f.name for f in files], list(files)).divided(generator)


def digits(_sources: Path, generator: np.random.Generator) -> tuple[Pictures, Pictures]:
    data = load_data(open_source("digits"), image_size=8, channels=1, test_fraction=0.0)
    return of_store(data, "train").divided(generator)


def named(name: str, size: int, channels: int, images: int) -> Callable[..., tuple[Pictures, Pictures]]:
    """A random subset of the training images, and the official test set."""

    def read(sources: Path, generator: np.random.Generator) -> tuple[Pictures, Pictures]:
        source = open_source(name, data_dir=sources)
        data = load_data(source, image_size=size, channels=channels, test_fraction=0.0)
        train = of_store(data, "train")
        rows = np.arange(images) if name == "mnist" else np.sort(generator.permutation(len(train))[:images])
        return train.some(rows), of_store(data, "test")

    return read


def of_store(data: Data, part: str) -> Pictures:
    store = getattr(data, part)
    images = store.images.permute(0, 2, 3, 1).numpy()
    images = images[..., 0] if images.shape[3] == 1 else images
    classes = [data.classes[label] for label in store.labels.tolist()]
    return Pictures(classes, [f"{row:05d}.png" for row in range(len(images))], list(images))


FOLDERS: dict[str, Callable[[Path, np.random.Generator], tuple[Pictures, Pictures]]] = {
    "flowers17": flowers,
    "cifar10-500": named("cifar10", 32, 3, 500),
    "cifar10-2000": named("cifar10", 32, 3, 2_000),
    "cifar10-10000": named("cifar10", 32, 3, 10_000),
    "mnist-2000": named("mnist", 28, 1, 2_000),
    "digits": digits,
}
