"""Replace each file of a run folder by something else, and use the run with each command.

A failure is a traceback, a command that waits or takes too long, or one that needs too much memory.
"""

import os
import resource
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic

import torch

from torture.forked import DONE, REFUSED, Forked
from torture.row import Row
from torture.small_runs import SETTINGS, image_files
from twofold.cli import app
from twofold.cli import pretrain as _  # noqa: F401 — commands are registered
from twofold.display import Display
from twofold.verbs.pretrain import configure, start

SECONDS = 60.0  # of one command on a busy machine
PROCESSOR_SECONDS = 20
BYTES = 2**30  # that a command may use more than this process
MOST_NOTES = 10


def a_folder(path: Path) -> None:
    path.mkdir()


def a_folder_with_files(path: Path) -> None:
    path.mkdir()
    (path / "file").write_bytes(b"x")


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to("nothing")


def an_empty_file(path: Path) -> None:
    path.write_bytes(b"")


def eight_gigabytes_of_zeros(path: Path) -> None:
    path.write_bytes(b"")
    os.truncate(path, 2**33)


def text(path: Path) -> None:
    path.write_text("\ufeff[[[\ud800".encode("utf-8", "surrogatepass").decode("latin1"))


def deep_json(path: Path) -> None:
    path.write_text("[" * 200_000)


def utf16(path: Path) -> None:
    path.write_bytes('{"format": 3}'.encode("utf-16"))


REPLACEMENTS: tuple[Callable[[Path], None], ...] = (
    *(a_folder, a_folder_with_files, a_pipe, a_link_to_a_device, a_link_to_itself, a_link_to_nothing),
    *(an_empty_file, eight_gigabytes_of_zeros, text, deep_json, utf16),
)

# {run} is the run folder, {other} an intact run, {images} its images, {image} one of them and {out} a new folder.
COMMANDS = {
    "resume": "resume {run}",
    "resume longer": "resume {run} epochs=3",
    "check": "check {run}",
    "report": "report {run}",
    "report with map": "report {run} --map 10",
    "compare": "compare {run} {other} --out {out}/compare.html",
    "probe": "probe {run} --out {out}/classifier.safetensors",
    "knn": "knn {run}",
    "embed": "embed {run} {images} --out {out}/features.npz",
    "search": "search {run} {images} {image}",
    "duplicates": "duplicates {run}",
    "export": "export {run} --format safetensors --out {out}/encoder.safetensors",
    "adapt": "adapt {run} --out {out}/adapted",
    "diagnose": "diagnose {run} {images}",
    "predict": "predict {run} {image}",
    "pretrain": "pretrain {images} --init {run} --out {out}/run --dry-run",
}


def command(words: list[str]) -> None:
    """Run a command silently, under limits of memory and processor time."""
    silent = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(silent, stream)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, used + BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS, PROCESSOR_SECONDS))
    app(words, standalone_mode=False)


def train(out: Path, method: str, epochs: int) -> None:
    """Train a run with all optional files: an adapter, a classifier, rows and pictures."""
    settings = SETTINGS | {"epochs": epochs, "map_points": 8}
    settings |= {"projector": "16,8"} if method == "s-diet" else {"adapter": True}
    config, source = configure(image_files().name, method, settings, Display(quiet=True))
    start(config, source, out=out, display=Display(quiet=True))


def unfinished(run: Path) -> None:
    for name in ("results.json", "report.html", "encoder.safetensors"):
        (run / name).unlink()


def cases(root: Path, chance: Random) -> Iterator[tuple[Path, str, Callable[[Path], None], str]]:
    """Yield a run, the name of a file, what replaces it and a command, each combination once in random order."""
    found = []
    for run in (root / "supervised", root / "s-diet", root / "stopped"):
        for file in sorted(file for file in run.rglob("*") if file.is_file()):
            name = str(file.relative_to(run))
            used = COMMANDS if run.name == "supervised" else ("resume", "resume longer", "check")
            found += [(run, name, replace, verb) for replace in REPLACEMENTS for verb in used]
    chance.shuffle(found)
    yield from found


def attempt(run: Path, name: str, replace: Callable[[Path], None], verb: str, root: Path) -> str:
    """Return what is wrong, or ""."""
    copy, out = root / "changed", root / "out"
    for folder in (copy, out):
        shutil.rmtree(folder, ignore_errors=True)
    out.mkdir()
    shutil.copytree(run, copy)
    (copy / name).unlink()
    replace(copy / name)
    images = Path(image_files().name)
    places = {"run": copy, "other": root / "s-diet", "images": images, "out": out}
    places["image"] = next(images.rglob("*.png"))
    words = COMMANDS[verb].format(**places).split()
    found = Forked(partial(command, words)).wait(SECONDS)
    return "" if found.kind in (DONE, REFUSED) else f"{verb}, {name} is {replace.__name__}: {found.kind}: {found.text}"


def run(seconds: float, seed: int) -> list[Row]:
    """Replace files for about this time, and return a row for each replacement."""
    torch.set_num_threads(1)
    end, tried, failures = monotonic() + seconds, Counter[str](), dict[str, list[str]]()
    with tempfile.TemporaryDirectory(prefix="twofold-replaced-") as aside:
        root = Path(aside)
        for method, name, epochs in (
            ("supervised", "supervised", 2),
            ("s-diet", "s-diet", 1),
            ("s-diet", "stopped", 1),
        ):
            done = Forked(partial(train, root / name, method, epochs)).wait()
            assert done.kind == DONE, done
        unfinished(root / "stopped")
        for found, name, replace, verb in cases(root, Random(seed)):
            problem = attempt(found, name, replace, verb, root)
            tried[replace.__name__] += 1
            if problem:
                failures.setdefault(replace.__name__, []).append(problem)
            if monotonic() > end:
                break
    return [
        Row(
            f"files replaced by {name.replace('_', ' ')}",
            count,
            len(failures.get(name, ())),
            "\n".join(failures.get(name, ())[:MOST_NOTES]),
        )
        for name, count in sorted(tried.items())
    ]
