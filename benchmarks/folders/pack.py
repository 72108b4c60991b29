"""Pack the folders of splits into one small file, and unpack them on a machine without the data sets.

    python -m benchmarks.folders.pack build/splits.zip --sources DATA --folders flowers17,digits --seeds 0,1,2
    python -m benchmarks.folders.pack build/splits.zip --unpack --work build/folders

An image that several splits have is stored once. Tiny images are stored as strips in lossless WebP, which needs a third
less space than a PNG file for each. The pixels are the same after unpacking.
"""

import argparse
import hashlib
import io
import json
import tempfile
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.folders.datasets import split

TINY = 32  # pixels
PER_STRIP = 200
INDEX = "index.json"
Places = dict[str, list[str]]  # path inside a folder of splits → the strip or file, and the row in the strip


class Packer:
    """Writes images into a zip file, each of them once."""

    def __init__(self, archive: zipfile.ZipFile):
        self.archive = archive
        self.known: dict[str, list[str]] = {}  # hash → place
        self.waiting: dict[tuple[str, int], list[np.ndarray]] = {}  # by mode and side
        self.strips: dict[tuple[str, int], int] = {}  # how many were written, by mode and side

    def add(self, path: Path) -> list[str]:
        data = path.read_bytes()
        key = hashlib.sha256(data).hexdigest()
        if key not in self.known:
            self.known[key] = self._place(path, data, key)
        return self.known[key]

    def _place(self, path: Path, data: bytes, key: str) -> list[str]:
        with Image.open(io.BytesIO(data)) as image:
            is_square = image.width == image.height
            if image.format == "PNG" and is_square and image.width <= TINY and image.mode in ("L", "RGB"):
                kind = (image.mode, image.width)
                rows = self.waiting.setdefault(kind, [])
                rows.append(np.asarray(image.convert("RGB")))
                place = [self._name(kind), str(len(rows) - 1)]
                if len(rows) == PER_STRIP:
                    self.write_strip(kind)
                return place
        name = f"{key}{path.suffix}"
        self.archive.writestr(name, data)
        return [name]

    def _name(self, kind: tuple[str, int]) -> str:
        return f"{kind[0]}-{kind[1]}-{self.strips.get(kind, 0)}.webp"

    def write_strip(self, kind: tuple[str, int]) -> None:
        found = io.BytesIO()
        Image.fromarray(np.concatenate(self.waiting.pop(kind))).save(found, "webp", lossless=True, method=4)
        self.archive.writestr(self._name(kind), found.getvalue())
        self.strips[kind] = self.strips.get(kind, 0) + 1


def pack(out: Path, names: list[str], seeds: list[int], sources: Path, part: str) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    places: Places = {}
    with zipfile.ZipFile(out, "w") as archive, tempfile.TemporaryDirectory() as work:
        packer = Packer(archive)
        for name in names:  # one after the other, so that a strip has images of one data set
            for seed in seeds:
                folder = split(name, sources, Path(work), seed, part).fit.parent
                for path in sorted(folder.glob("*/*/*")):
                    places[str(path.relative_to(work))] = packer.add(path)
            for kind in list(packer.waiting):
                packer.write_strip(kind)
        archive.writestr(INDEX, json.dumps(places), zipfile.ZIP_LZMA)


def unpack(packed: Path, work: Path) -> None:
    with zipfile.ZipFile(packed) as archive:
        strips: dict[str, np.ndarray] = {}
        places: Places = json.loads(archive.read(INDEX))
        for path, (name, *row) in places.items():
            target = work / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if not row:
                target.write_bytes(archive.read(name))
                continue
            if name not in strips:
                strips[name] = np.asarray(Image.open(io.BytesIO(archive.read(name))))
            mode, side = name.split("-")[0], strips[name].shape[1]
            start = int(row[0]) * side
            Image.fromarray(strips[name][start : start + side]).convert(mode).save(target)
        for folder in {Path(path).parts[0] for path in places}:
            (work / folder / "complete").touch()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--sources", type=Path, help="as for `python -m benchmarks.folders`")
    parser.add_argument("--folders", type=lambda text: text.split(","), default=[])
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[0, 1, 2])
    parser.add_argument("--part", choices=("validation", "test"), default="test")
    parser.add_argument("--unpack", action="store_true")
    parser.add_argument("--work", type=Path, default=Path("build/folders"))
    given = parser.parse_args()
    if given.unpack:
        return unpack(given.file, given.work)
    return pack(given.file, given.folders, given.seeds, given.sources, given.part)


if __name__ == "__main__":
    main()
