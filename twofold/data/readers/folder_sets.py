"""Sets of the papers that are distributed as folders, and STL-10 with its images without labels."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from twofold.data.decode import fit
from twofold.data.items import UNKNOWN, Items
from twofold.data.readers.folder import Splits, read_folder
from twofold.data.readers.named_sets import Remote, located
from twofold.data.work import Progress
from twofold.errors import TwofoldError

# Blurred from 96 pixels on, as in the papers; smaller images have no detail to lose.
_BLURRED: dict[str, Any] = {"augment.blur": 0.5}
STL10_DEFAULTS: dict[str, Any] = {"encoder": "resnet18", "stem": "large", **_BLURRED}

STL10_FOLDER = "stl10_binary"
STL10_SHAPE = (3, 96, 96)
STL10_FILES = ("train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin", "unlabeled_X.bin", "class_names.txt")
STL10_REMOTES = (
    Remote(
        "http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
        "91f7769df0f17e558f3565bffb0c7dfb",
        tuple(f"{STL10_FOLDER}/{name}" for name in STL10_FILES),
    ),
)


@dataclass(frozen=True)
class FolderSet:
    """A set in train and val folders: where it may lie below data_dir, and what suits it."""

    folders: tuple[str, ...]
    defaults: dict[str, Any]
    how: str  # it is had
    classes: tuple[str, ...] = field(default=())  # only these, where there are any


# The hundred classes of Tian, Krishnan, Isola: Contrastive Multiview Coding (2020), which others took over.
_IMAGENET100 = """
n02869837 n01749939 n02488291 n02107142 n13037406 n02091831 n04517823 n04589890 n03062245 n01773797
n01735189 n07831146 n07753275 n03085013 n04485082 n02105505 n01983481 n02788148 n03530642 n04435653
n02086910 n02859443 n13040303 n03594734 n02085620 n02099849 n01558993 n04493381 n02109047 n04111531
n02877765 n04429376 n02009229 n01978455 n02106550 n01820546 n01692333 n07714571 n02974003 n02114855
n03785016 n03764736 n03775546 n02087046 n07836838 n04099969 n04592741 n03891251 n02701002 n03379051
n02259212 n07715103 n03947888 n04026417 n02326432 n03637318 n01980166 n02113799 n02086240 n03903868
n02483362 n04127249 n02089973 n03017168 n02093428 n02804414 n02396427 n04418357 n02172182 n01729322
n02113978 n03787032 n02089867 n02119022 n03777754 n04238763 n02231487 n03032252 n02138441 n02104029
n03837869 n03494278 n04136333 n03794056 n03492542 n02018207 n04067472 n03930630 n03584829 n02123045
n04229816 n02100583 n03642806 n04336792 n03259280 n02116738 n02108089 n03424325 n01855672 n02090622
"""
_IMAGENET_FOLDERS = ("imagenet", "ImageNet", "ILSVRC2012", "ILSVRC/Data/CLS-LOC")
_IMAGENET_HOW = "from image-net.org, with train and val in it, and in both a folder for each class"
FOLDER_SETS = {
    "tiny-imagenet": FolderSet(
        ("tiny-imagenet-200",),
        {"encoder": "resnet18", "stem": "small-pool"},
        "unpacked from http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    ),
    "imagenet": FolderSet(_IMAGENET_FOLDERS, {"encoder": "resnet50", "stem": "large", **_BLURRED}, _IMAGENET_HOW),
    "imagenet100": FolderSet(
        ("imagenet100", "imagenet-100", *_IMAGENET_FOLDERS),
        {"encoder": "resnet18", "stem": "large", **_BLURRED},
        _IMAGENET_HOW,
        tuple(_IMAGENET100.split()),
    ),
}


def read_folder_set(name: str, data_dir: Path, progress: Progress | None) -> Splits:
    known = FOLDER_SETS[name]
    root = next((data_dir / folder for folder in known.folders if (data_dir / folder / "train").is_dir()), None)
    if root is None:
        raise TwofoldError(f"{name} needs the folder {data_dir / known.folders[0]}, {known.how}")
    train, test, classes = read_folder(root, progress, only=known.classes)
    if test is None or test.labels is None:
        raise TwofoldError(
            f"{root} has no labelled test images: val needs a folder for each class, or val_annotations.txt; "
            f"`twofold pretrain {root}` takes it as it is"
        )
    return train, test, classes


def read_stl10(data_dir: Path, download: bool) -> Splits:
    """Trained on 105,000 images, of which 5,000 have labels; probed with those, and tested on 8,000.

    The labelled images come first, so that their stable index is their number in train_X.bin.
    """
    files = located("stl10", data_dir, STL10_REMOTES, (STL10_FOLDER, "."), download)
    classes = tuple(files["class_names.txt"].read_text(encoding="utf-8", errors="replace").split())
    labelled, test, unlabelled = (_pixels(files[f"{part}_X.bin"]) for part in ("train", "test", "unlabeled"))
    train_labels = _labels(files["train_y.bin"], len(labelled), len(classes))
    unknown = np.full(len(unlabelled), UNKNOWN)
    train = _items([labelled, unlabelled], np.concatenate([train_labels, unknown]), files)
    return train, _items([test], _labels(files["test_y.bin"], len(test), len(classes)), files), classes


def _pixels(path: Path) -> np.ndarray:
    """Mapped, [n, C, W, H]: the columns of an image follow each other."""
    images, rest = divmod(path.stat().st_size, int(np.prod(STL10_SHAPE)))
    if rest or not images:
        raise TwofoldError(f"{path} does not hold whole images of 96 x 96 pixels; fetch the file again")
    return np.memmap(path, np.uint8, "r", shape=(images, *STL10_SHAPE))


def _labels(path: Path, images: int, classes: int) -> np.ndarray:
    labels = np.fromfile(path, np.uint8).astype(np.int64) - 1
    if labels.shape != (images,) or not ((labels >= 0) & (labels < classes)).all():
        raise TwofoldError(f"{path} does not have a label from 1 to {classes} for each image; fetch the file again")
    return labels


def _items(parts: list[np.ndarray], labels: np.ndarray, files: dict[str, Path]) -> Items:
    def fetch(row: int, size: int, channels: int) -> np.ndarray:
        for images in parts:
            if row < len(images):
                return fit(Image.fromarray(np.ascontiguousarray(images[row].transpose(2, 1, 0))), size, channels)
            row -= len(images)
        raise IndexError(row)

    facts = [(name, path.stat().st_size, path.stat().st_mtime_ns) for name, path in sorted(files.items())]
    count = sum(len(images) for images in parts)
    return Items(fetch, count, labels, side=STL10_SHAPE[1], grey=False, facts=repr(facts).encode())
