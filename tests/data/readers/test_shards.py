import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from twofold.data.load import load_data
from twofold.data.open import open_source
from twofold.data.readers import shards
from twofold.errors import TwofoldError

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _temporary_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "cache"))


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def pack(path: Path, members: Mapping[str, bytes], mode: str = "w:") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def samples(first: int, count: int) -> tuple[dict[str, bytes], list[np.ndarray]]:
    """Samples in the format of WebDataset: the image and the label of a sample have the same key."""
    pixels = [RNG.integers(0, 256, (8, 8, 3), dtype=np.uint8) for _ in range(count)]
    members = {}
    for number, image in enumerate(pixels, start=first):
        members |= {f"{number:05d}.png": png(image), f"{number:05d}.cls": str(number % 3).encode()}
    return members, pixels


def test_samples_keep_keys_order_labels_and_pixels(tmp_path: Path) -> None:
    pixels = []
    for number in range(3):
        members, drawn = samples(4 * number, 4)
        pack(tmp_path / "set" / f"train-{number:06d}.tar", members)
        pixels += drawn
    for data in (tmp_path / "set", str(tmp_path / "set" / "train-{000000..000002}.tar")):
        source = open_source(data)
        loaded = load_data(source, image_size=8, channels=3, test_fraction=0)
        assert loaded.train.files == tuple(f"{number:05d}" for number in range(12))
        assert loaded.train.labels.tolist() == [number % 3 for number in range(12)]
        np.testing.assert_array_equal(loaded.train.images.permute(0, 2, 3, 1), pixels)
        assert open_source(source.location).fingerprint == source.fingerprint
    assert source.name == "train"
    assert open_source(tmp_path / "set/train-000001.tar").train.files == ("00004", "00005", "00006", "00007")


def test_changed_shard_has_a_different_fingerprint(tmp_path: Path) -> None:
    path = pack(tmp_path / "a.tar", samples(0, 3)[0])
    before = open_source(path).fingerprint
    pack(path, samples(0, 3)[0])
    assert open_source(path).fingerprint != before


def test_labels_are_read_from_json_and_may_be_missing(tmp_path: Path) -> None:
    picture = png(np.zeros((8, 8, 3), np.uint8))
    members = {
        "set/a.seg.png": picture, "set/a.json": json.dumps({"label": "cat", "width": 8}).encode(),
        "set/b.png": picture, "set/b.json": b"{}",
        "c.png": picture, "c.cls": b"dog\n", "c.txt": b"a caption",
        "readme.md": b"text",
    }  # fmt: skip
    source = open_source(pack(tmp_path / "a.tar", members))
    assert source.train.files == ("set/a", "set/b", "c")
    assert (source.train.labels.tolist(), source.classes) == ([0, -1, 1], ("cat", "dog"))


def test_test_shards_are_recognized_by_their_names(tmp_path: Path) -> None:
    pack(tmp_path / "set/data-train-0.tar", samples(0, 4)[0])
    pack(tmp_path / "set/data-val-0.tar", samples(0, 3)[0])
    source = open_source(tmp_path / "set")
    assert (len(source.train), len(source.test)) == (4, 3)
    (tmp_path / "set/data-train-0.tar").rename(tmp_path / "set/data-part-0.tar")
    alone = open_source(tmp_path / "set")
    assert (len(alone.train), alone.test) == (7, None)
    assert alone.train.files[0] == "data-part-0.tar/00000"  # both number their samples from 0


def test_broken_images_are_skipped_with_a_reason(tmp_path: Path) -> None:
    members, _ = samples(0, 5)
    members["00002.png"] = members["00002.png"][:60]
    members["00004.png"] = b""
    data = load_data(open_source(pack(tmp_path / "a.tar", members)), image_size=8, channels=3, test_fraction=0)
    assert [item.path for item in data.skipped] == ["00002", "00004"]
    assert data.train.index.tolist() == [0, 1, 3]


def test_links_and_folders_in_an_archive_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(png(np.zeros((8, 8, 3), np.uint8)))
    path = tmp_path / "a.tar"
    members, _ = samples(0, 2)
    with tarfile.open(path, "w:") as tar:
        for name, kind in (("x.png", tarfile.SYMTYPE), ("y.png", tarfile.LNKTYPE), ("z.png", tarfile.DIRTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, str(tmp_path / "secret.png")
            tar.addfile(member)
        for name, content in {"../../above.png": members["00000.png"], "/root.png": members["00001.png"]}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    before = sorted(tmp_path.rglob("*"))
    source = open_source(path)
    load_data(source, image_size=8, channels=3, test_fraction=0)
    assert source.train.files == ("../../above", "/root")
    assert [path for path in sorted(tmp_path.rglob("*")) if "cache" not in path.parts] == before


def test_invalid_shards_raise_an_error(tmp_path: Path) -> None:
    members, _ = samples(0, 3)
    whole = pack(tmp_path / "whole.tar", members)
    cut = tmp_path / "cut.tar"
    cut.write_bytes(whole.read_bytes()[:700])
    (tmp_path / "text.tar").write_text("no archive" * 100)
    cases = {
        "gunzip": pack(tmp_path / "packed.tar", members, "w:gz"),
        "cannot be read as a tar file": tmp_path / "text.tar",
        "no images in": pack(tmp_path / "empty.tar", {"a.txt": b"text"}),
        "x-3.tar does not exist": str(tmp_path / "x-{3..5}.tar"),
        "use a pattern of at most": str(tmp_path / "x-{0..99999999}.tar"),
        "contains no label": pack(tmp_path / "label.tar", {**members, "00000.json": b"{"}),
        "has the label": pack(tmp_path / "labels.tar", {**members, "00000.json": b'{"label": [1]}'}),
        "none of the inspected images can be read": pack(tmp_path / "broken.tar", {"a.png": b"x", "b.png": b"y"}),
    }
    for message, data in cases.items():
        with pytest.raises(TwofoldError, match=message) as caught:
            open_source(data)
        assert "\n" not in str(caught.value)
    assert len(shards.members(whole)) == 3
    with pytest.raises(TwofoldError):
        load_data(open_source(cut), image_size=8, channels=3, test_fraction=0)


@pytest.mark.parametrize("kind", [b"L", b"K", b"x", b"g"])
def test_headers_that_claim_a_huge_size_reserve_no_memory(tmp_path: Path, kind: bytes) -> None:
    path = pack(tmp_path / "a.tar", {"a.png": png(np.zeros((4, 4, 3), np.uint8))})
    content = bytearray(path.read_bytes())
    content[124:136], content[156:157] = b"7" * 11 + b"\0", kind  # 8 GiB of long names
    content[148:156] = b" " * 8
    content[148:156] = b"%06o\0 " % sum(content[:512])
    path.write_bytes(content)
    with pytest.raises(TwofoldError, match=r"a\.tar cannot be read as a tar file"):
        shards.members(path)
