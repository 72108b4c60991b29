"""Measure how the memory of commands grows with the number of images: `pretrain`, `embed`, `search` and `report`.

    python -m benchmarks.memory_growth [--files 1000,10000,100000] [--folder FOLDER]

The folders contain hard links to 1,000 different small JPEG files, without labels. Runs train for one epoch on images
of 8 pixels, so that the memory of images, features and lists is visible next to that of the network. Each command is a
process of its own, and the cache is empty at first. "own" is the peak of the memory that belongs to the process alone.
"with files" adds the pages of memory-mapped files, such as the cache of decoded images; the system can take them back
at any time. Memory is read every 20 ms, so the shortest peaks may be missed.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.folder_load import make
from benchmarks.results import Table, keep

DIFFERENT = 1000  # files; a file system allows some 60,000 links to each
SECONDS = 0.02


def link(originals: Path, root: Path, files: int) -> None:
    """Fill a folder with hard links to the original images."""
    sources = sorted(originals.rglob("*.jpg"))
    root.mkdir(parents=True)
    for number in range(files):
        os.link(sources[number % len(sources)], root / f"{number:07d}.jpg")


def peaks(words: list[str], cache: Path) -> tuple[float, float, float]:
    """Run a command and return the peaks of its own memory and of all its resident memory, in MiB, and the seconds."""
    start = time.perf_counter()
    environment = os.environ | {"TWOFOLD_CACHE": str(cache)}
    process = subprocess.Popen([sys.executable, "-m", "twofold", *words], env=environment, stdout=subprocess.DEVNULL)
    own, resident = 0, 0
    while process.poll() is None:
        found = dict.fromkeys(("RssAnon", "RssFile", "RssShmem"), 0)
        try:
            for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
                name, _, value = line.partition(":")
                if name in found:
                    found[name] = int(value.split()[0])
        except OSError:  # it has just ended
            break
        own, resident = max(own, found["RssAnon"]), max(resident, sum(found.values()))
        time.sleep(SECONDS)
    if process.wait():
        raise SystemExit(f"failed: twofold {' '.join(words)}")
    return own / 2**10, resident / 2**10, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", default="1000,10000,100000")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir(), "twofold-memory-growth"))
    parser.add_argument("--commit", default="", help="the commit to record, if git is not available")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    originals = options.folder / "originals"
    make(originals, DIFFERENT)
    table = Table("files", "command", "own, MiB", "with files, MiB", "seconds")
    for files in map(int, options.files.split(",")):
        place = Path(tempfile.mkdtemp(dir=options.folder))
        try:
            images, run = str(place / "images"), str(place / "run")
            link(originals, Path(images), files)
            keys = ["encoder=conv", "image_size=8", "batch_size=256", "epochs=1", "checkpoint.seconds=1000"]
            query = str(sorted(originals.rglob("*.jpg"))[0])
            commands = {
                "pretrain": ["pretrain", images, "--method", "simclr", "--out", run, *keys],
                "embed": ["embed", run, images, "--out", str(place / "features.npz")],
                "search": ["search", run, images, query],
                "search again": ["search", run, images, query],
                "report": ["report", run],
            }
            for name, words in commands.items():
                own, resident, seconds = peaks(words, place / "cache")
                row = {"files": files, "command": name, "own, MiB": own, "with files, MiB": resident}
                table.add(row | {"seconds": seconds})
        finally:
            shutil.rmtree(place)
    keep("memory-growth-cpu", table, {"files": options.files}, "cpu", options.commit, options.out)


if __name__ == "__main__":
    main()
