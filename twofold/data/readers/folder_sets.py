"""Named datasets that are distributed as folders of images: `tiny-imagenet`, `imagenet` and `imagenet100`."""

from dataclasses import dataclass
from typing import Any

from twofold.data.item_split import ItemSplits
from twofold.data.readers.folder import read_folder
from twofold.data.source import ReadOptions
from twofold.errors import TwofoldError

# As in the papers, images of 96 pixels and more are blurred. Smaller images have too little detail.
BLURRED: dict[str, Any] = {"augment.blur": 0.5}


@dataclass(frozen=True)
class FolderSet:
    """A dataset with the folders `train` and `val`."""

    folders: tuple[str, ...]  # possible folders below data_dir
    defaults: dict[str, Any]  # configuration keys that suit the dataset
    how_to_get: str
    classes: tuple[str, ...] = ()  # if not empty, only these classes are read


# The hundred classes of Tian, Krishnan, Isola: Contrastive Multiview Coding (2020), which later papers also use.
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
_FROM_IMAGENET = "from image-net.org, with the folders train and val, which contain one folder for each class"
FOLDER_SETS = {
    "tiny-imagenet": FolderSet(
        ("tiny-imagenet-200",),
        {"encoder": "resnet18", "stem": "small-pool"},
        "unpacked from http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    ),
    "imagenet": FolderSet(_IMAGENET_FOLDERS, {"encoder": "resnet50", "stem": "large", **BLURRED}, _FROM_IMAGENET),
    "imagenet100": FolderSet(
        ("imagenet100", "imagenet-100", *_IMAGENET_FOLDERS),
        {"encoder": "resnet18", "stem": "large", **BLURRED},
        _FROM_IMAGENET,
        tuple(_IMAGENET100.split()),
    ),
}


def read_folder_set(name: str, options: ReadOptions) -> ItemSplits:
    known = FOLDER_SETS[name]
    roots = [options.data_dir / folder for folder in known.folders]
    root = next((root for root in roots if (root / "train").is_dir()), None)
    if root is None:
        raise TwofoldError(f"{name} needs the folder {roots[0]}, {known.how_to_get}")
    train, test, classes = read_folder(root, options.progress, only=known.classes, options=options.decode)
    if test is None or test.labels is None:
        raise TwofoldError(
            f"{root} has no labelled test images: val needs a folder for each class, or val_annotations.txt; "
            f"to train without test images, run `twofold pretrain {root}`"
        )
    return train, test, classes
