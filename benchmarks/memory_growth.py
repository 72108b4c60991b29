"""Measure how the memory of commands grows with the number of images: `pretrain`, `embed`, `search` and `report`.

    python -m benchmarks.memory_growth [--files 1000,10000,100000,1000000] [--folder FOLDER]

The folders contain hard links to 1,000 different small JPEG files, without labels. Runs train for one epoch on images
of 8 pixels, so that the memory of images, features and lists is visible next to that of the network. On folders of more
than --whole images, the run is stopped as soon as it has recorded its first steps, because an epoch would take too
long. The other commands then use the first run that was finished, and there is no report. Each command is a process of
its own, and the cache is empty at first.

"own" is the peak of the memory that belongs to the process alone. "with files" adds the pages of memory-mapped files,
such as the cache of decoded images; the system can take them back at any time. Memory is read every 20 ms, so the
shortest peaks may be missed. The processes that decode small files are not counted: there is one for each core, and
their memory does not depend on the number of files.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.folder_load import make
from benchmarks.results import Table, keep

DIFFERENT = 1000  # files; a file system allows some 60,000 links to each
SECONDS = 0.02
STOPPED = 128 + signal.SIGTERM  # the status of a run that was stopped


def link(originals: Path, root: Path, files: int) -> None:
    """Fill a folder with hard links to the original images."""
    sources = sorted(originals.rglob("*.jpg"))
    root.mkdir(parents=True)
    for number in range(files):
        os.link(sources[number % len(sources)], root / f"{number:07d}.jpg")


def peaks(words: list[str], cache: Path, stop_after: Path | None = None) -> tuple[float, float, float]:
    """Run a command and return the peaks of its own memory and of all its resident memory, in MiB, and the seconds.

    The command is stopped once the file `stop_after` has content.
    """
    start = time.perf_counter()
    environment = os.environ | {"TWOFOLD_CACHE": str(cache)}
    process = subprocess.Popen([sys.executable, "-m", "twofold", *words], env=environment, stdout=subprocess.DEVNULL)
    own, resident, is_stopped = 0, 0, False
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
        if stop_after is not None and not is_stopped and stop_after.exists() and stop_after.stat().st_size:
            process.send_signal(signal.SIGTERM)
            is_stopped = True
        time.sleep(SECONDS)
    if process.wait() and not (is_stopped and process.returncode == STOPPED):
        raise SystemExit(f"failed: twofold {' '.join(words)}")
    return own / 2**10, resident / 2**10, time.perf_counter() - start


def commands(
    originals: Path, place: Path, files: int, finished: Path, is_whole: bool
) -> Iterator[tuple[str, list[str], Path | None]]:
    """Make a folder of images, and yield the commands with their titles and the files that stop them.

    `finished` becomes the first run that is trained to its end. Other commands use it if the run of `files` is stopped.
    """
    images, run, query = place / "images", place / "run", str(sorted(originals.rglob("*.jpg"))[0])
    link(originals, images, files)
    keys = ["encoder=conv", "image_size=8", "batch_size=256", "epochs=1", "checkpoint.seconds=1000"]
    pretrain = ["pretrain", str(images), "--method", "simclr", "--out", str(run), *keys]
    if is_whole:
        yield "pretrain", pretrain, None
        if not finished.exists():
            shutil.copytree(run, finished)
    else:
        yield "pretrain, stopped", pretrain, run / "metrics.jsonl"
        run = finished
    yield "embed", ["embed", str(run), str(images), "--out", str(place / "features.npz")], None
    for title in ("search", "search again"):
        yield title, ["search", str(run), str(images), query], None
    if is_whole:
        yield "report", ["report", str(run)], None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", default="1000,10000,100000,1000000")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir(), "twofold-memory-growth"))
    parser.add_argument("--whole", type=int, default=100_000, help="the most images for a whole epoch")
    parser.add_argument("--note", default="", help="a remark for the record, such as what else used the machine")
    parser.add_argument("--commit", default="", help="the commit to record, if git is not available")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    originals = options.folder / "originals"
    make(originals, DIFFERENT)
    table = Table("files", "command", "own, MiB", "with files, MiB", "seconds")
    settings = {"files": options.files, "whole": options.whole, "note": options.note}
    finished = options.folder / "finished"
    shutil.rmtree(finished, ignore_errors=True)
    for files in map(int, options.files.split(",")):
        place = Path(tempfile.mkdtemp(dir=options.folder))
        try:
            for title, words, stop_after in commands(originals, place, files, finished, files <= options.whole):
                own, resident, seconds = peaks(words, place / "cache", stop_after)
                row = {"files": files, "command": title, "own, MiB": own, "with files, MiB": resident}
                table.add(row | {"seconds": seconds})
                keep("memory-growth-cpu", table, settings, "cpu", options.commit, options.out)
        finally:
            shutil.rmtree(place)
    shutil.rmtree(finished, ignore_errors=True)


if __name__ == "__main__":
    main()
