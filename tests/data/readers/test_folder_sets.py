"""The datasets of the papers, as small files in the layouts in which they are distributed."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from twofold.data.open import open_source
from twofold.data.readers import folder_sets
from twofold.errors import TwofoldError
from twofold.verbs import pretrain

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _temporary_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "cache"))


def draw(path: Path, side: int = 64) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(RNG.integers(0, 256, (side, side, 3), dtype=np.uint8)).save(path)


def tiny_imagenet(data_dir: Path) -> Path:
    root = data_dir / "tiny-imagenet-200"
    for name in ("n01443537", "n01629819"):
        for number in range(3):
            draw(root / f"train/{name}/images/{name}_{number}.JPEG")
        (root / f"train/{name}/{name}_boxes.txt").write_text(f"{name}_0.JPEG\t0\t10\t63\t58\n")
    for number in range(4):
        draw(root / f"val/images/val_{number}.JPEG")
        draw(root / f"test/images/test_{number}.JPEG")
    rows = [(0, "n01629819"), (1, "n01443537"), (2, "n01443537"), (3, "n01629819")]
    (root / "val/val_annotations.txt").write_text("".join(f"val_{n}.JPEG\t{name}\t0\t32\t44\t62\n" for n, name in rows))
    (root / "wnids.txt").write_text("n01443537\nn01629819\n")
    return root


def test_tiny_imagenet_reads_labels_from_its_annotations(tmp_path: Path) -> None:
    root = tiny_imagenet(tmp_path)
    for data in ("tiny-imagenet", root):
        source = open_source(data, data_dir=tmp_path)
        assert source.classes == ("n01443537", "n01629819")
        assert source.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
        assert source.test.files == tuple(f"val/images/val_{number}.JPEG" for number in range(4))
        assert source.test.labels.tolist() == [1, 0, 0, 1]
        assert source.train.side == 64
    (root / "val/val_annotations.txt").write_text("val_0.JPEG\tn01629819\n")
    with pytest.raises(TwofoldError, match=r"val_annotations.txt does not state the class of .*val_1"):
        open_source(root)


def imagenet(data_dir: Path, classes: list[str]) -> Path:
    root = data_dir / "imagenet"
    for name in classes:
        draw(root / f"train/{name}/{name}_1.JPEG", 100)
        draw(root / f"train/{name}/{name}_2.JPEG", 100)
        draw(root / f"val/{name}/ILSVRC2012_val_{name}.JPEG", 100)
    return root


def test_imagenet_and_its_subset_of_100_classes(tmp_path: Path) -> None:
    hundred = folder_sets.FOLDER_SETS["imagenet100"].classes
    assert len(set(hundred)) == 100
    root = imagenet(tmp_path, [*hundred[:2], "n00000001"])
    whole = open_source("imagenet", data_dir=tmp_path)
    assert (len(whole.train), len(whole.test), len(whole.classes)) == (6, 3, 3)
    with pytest.raises(TwofoldError, match="98 of the 100 requested classes"):
        open_source("imagenet100", data_dir=tmp_path)
    (tmp_path / "classes.txt").write_text("\n".join(hundred[:2]) + "\n\n")
    part = open_source(root, class_list=tmp_path / "classes.txt")
    assert part.classes == tuple(sorted(hundred[:2]))
    assert all(name.split("/")[1] in hundred[:2] for name in (*part.train.files, *part.test.files))
    assert part.train.labels.tolist() == [0, 0, 1, 1]


def test_missing_files_and_classes_raise_an_error(tmp_path: Path) -> None:
    with pytest.raises(TwofoldError, match=r"tiny-imagenet-200.*zip"):
        open_source("tiny-imagenet", data_dir=tmp_path)
    with pytest.raises(TwofoldError, match=r"train_X.bin.*stl10_binary.tar.gz"):
        open_source("stl10", data_dir=tmp_path)
    root = imagenet(tmp_path, ["n1", "n2"])
    for path in root.glob("val/*/*"):
        path.rename(root / "val" / path.name)
    with pytest.raises(TwofoldError, match="val needs a folder for each class"):
        open_source("imagenet", data_dir=tmp_path)
    for content, message in (("", "contains no class names"), ("n1\nn7\n", "no images of n7")):
        (tmp_path / "classes.txt").write_text(content)
        with pytest.raises(TwofoldError, match=message):
            open_source(root / "train", class_list=tmp_path / "classes.txt")
    with pytest.raises(TwofoldError, match="cannot be read"):
        open_source(root, class_list=tmp_path / "none.txt")


def test_class_list_is_stored_in_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = imagenet(tmp_path, ["n1", "n2", "n3"])
    (tmp_path / "classes.txt").write_text("n1\nn3\n")
    monkeypatch.chdir(tmp_path)
    config, source = pretrain.configure(root, None, {"class_list": "classes.txt"})
    assert config.class_list == str(tmp_path / "classes.txt")
    assert source.classes == ("n1", "n3")
    np.save(tmp_path / "a.npy", np.zeros((4, 8, 8), np.uint8))
    with pytest.raises(TwofoldError, match="class_list is only for folders"):
        pretrain.configure("a.npy", None, {"class_list": "classes.txt"})
