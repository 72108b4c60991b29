"""The run folder: what a run leaves behind, readable without Twofold.

config.json · metrics.jsonl, spectrum.jsonl (functions of configuration and data alone: bit-identical after a resume) ·
timing.jsonl (wall-clock, kept apart) · skipped.txt · log.txt · initial.safetensors (where a run began with weights of
others) · untrained.safetensors (what an encoder of the user's own began with) · images.npz (hashes of the training
images) · checkpoints/ · encoder.safetensors · results.json · pictures.json (what the report shows of the images) ·
report.html · tensorboard/ where it was asked for
"""

import itertools
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twofold.errors import Interrupted, Stopped, TwofoldError, how_to_report, how_to_resume
from twofold.files import FULL, hold, is_writable, sync, write_atomically

if TYPE_CHECKING:
    from twofold.runs.checkpoint import Saved

LOG = "log.txt"
RECORDS = ("metrics.jsonl", "spectrum.jsonl")
OF_THE_REPORT = ("pictures.json", "report.html")  # `twofold report` makes them again


@dataclass(frozen=True)
class Numbered:
    """A folder whose name is Twofold's choice: parent/stem-1, or the first number that is free when it is made."""

    parent: Path
    stem: str

    def __str__(self) -> str:
        return str(self.path(1))

    def path(self, number: int) -> Path:
        """A name that needs no quotes in a shell."""
        plain = re.sub(r"[^\w.-]+", "-", self.stem)
        return self.parent / f"{plain}-{number}"

    def take(self) -> Path:
        """Made by who gets it, since others may be looking for a name at the same time."""
        self.parent.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            with suppress(FileExistsError):
                self.path(number).mkdir()
                break
        return self.path(number)

    def taken(self) -> list[Path]:
        """The folders of such a name that are runs, the last begun first."""
        name = re.compile(re.escape(self.path(0).name[:-1]) + r"[0-9]+")
        runs = [path / "config.json" for path in self.parent.glob("*") if name.fullmatch(path.name)]
        begun = {run.parent: run.stat().st_mtime_ns for run in runs if run.exists()}
        return sorted(begun, key=lambda path: -begun[path])


class RunFolder:
    def __init__(self, path: Path):
        self.path = path

    @staticmethod
    def refuse_existing(path: Path) -> None:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            is_run = (path / "config.json").exists()
            advice = f"`{how_to_resume(path)}` continues it" if is_run else "choose another --out"
            raise TwofoldError(f"{path} exists already; {advice}")

    @classmethod
    def create(cls, place: Path | Numbered, config: str) -> "RunFolder":
        """A new folder with its configuration; what is there already is never touched."""
        if isinstance(place, Path):
            cls.refuse_existing(place)
        claimed: Path | None = None
        try:
            path = place.take() if isinstance(place, Numbered) else place
            path.mkdir(parents=True, exist_ok=True)
            (path / LOG).touch(exist_ok=False)  # of several who found the folder empty, one gets it
            claimed = path / LOG
            write_atomically(path / "config.json", config)
        except OSError as error:
            if isinstance(error, FileExistsError) and isinstance(place, Path):
                cls.refuse_existing(place)
            elif claimed is not None:
                claimed.unlink(missing_ok=True)  # so that the next try finds the folder as empty as this one did
            raise TwofoldError(f"the run folder {place} cannot be written: {error.strerror}") from None
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        if not path.is_dir():
            raise TwofoldError(f"there is no run folder {path}")
        if not (path / "config.json").exists():
            raise TwofoldError(f"{path} is not a run folder: it has no config.json")
        return cls(path)

    @contextmanager
    def held(self) -> Iterator[None]:
        """While one process trains in it, another would write into the same records."""
        with (self.path / "config.json").open() as file:
            if not hold(file):
                raise TwofoldError(f"{self.path} is in use by another process, which is training it")
            try:
                yield
            except KeyboardInterrupt as stop:
                raise stop if isinstance(stop, Interrupted) else Stopped(self.path) from None

    def config_text(self) -> str:
        return (self.path / "config.json").read_text()

    def config_values(self) -> dict[str, Any]:
        """As they were saved, those of a method that is not known here too."""
        return json.loads(self.config_text())["values"]

    def append(self, name: str, record: dict[str, Any]) -> None:
        """One JSON line. It is on disk for certain only after the next checkpoint."""
        self._append(name, json.dumps(record))

    def log(self, line: str) -> None:
        self._append(LOG, line)

    def _append(self, name: str, line: str) -> None:
        try:
            with (self.path / name).open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(line + "\n")
        except OSError as error:
            raise self._unwritable(name, error) from None

    def read(self, name: str) -> list[dict[str, Any]]:
        path = self.path / name
        if not path.exists():
            return []
        lines = path.read_text().splitlines(keepends=True)
        # A kill can cut the last line short; resuming truncates it, reading leaves it out.
        whole = [line for line in lines if line.endswith("\n")]
        try:
            return [json.loads(line) for line in whole]
        except ValueError:
            raise TwofoldError(f"{path} is damaged: it has a line that is not JSON") from None

    def offsets(self) -> dict[str, int]:
        """How long the records are now, once they are safely on disk: a checkpoint keeps this."""
        lengths = {}
        for name in RECORDS:
            path = self.path / name
            if path.exists():
                sync(path)
            lengths[name] = path.stat().st_size if path.exists() else 0
        return lengths

    def checkpoint(self, say: Callable[[str], None], *, or_older: bool) -> "Saved | None":
        """Of the last moment that was saved, `or_older` where that is damaged; what is wrong is said and logged."""
        from twofold.runs.checkpoint import load_latest, load_sound  # late: reports of runs are written without torch

        def notice(text: str) -> None:
            say(text)
            self.log(text)

        return load_sound(self.path, notice) if or_older else load_latest(self.path)

    def rewind(self, offsets: dict[str, int], step: int | None = None) -> None:
        """Forget what was written after the checkpoint of this step: the resumed run writes it again."""
        if step is not None:
            from twofold.runs.checkpoint import point_at

            point_at(self.path / "checkpoints", step)
        for name in RECORDS:
            path = self.path / name
            try:
                if path.exists():
                    os.truncate(path, offsets.get(name, 0))
            except OSError as error:
                raise self._unwritable(name, error) from None

    def write(self, name: str, text: str) -> Path:
        try:
            write_atomically(self.path / name, text)
        except OSError as error:
            raise self._unwritable(name, error) from None
        return self.path / name

    def _unwritable(self, name: str, error: OSError) -> TwofoldError:
        problem = f"{self.path / name} could not be written ({error.strerror or error})"
        remedy = "make room" if error.errno in FULL else f"make {self.path} writable"
        if name in OF_THE_REPORT:
            return TwofoldError(f"{problem}: {remedy}, then `{how_to_report(self.path)}`")
        return TwofoldError(f"{problem}; the last checkpoint is sound: {remedy}, then `{how_to_resume(self.path)}`")

    def refuse_unwritable(self) -> None:
        """Before a report is made, not after it."""
        if not is_writable(self.path):
            raise TwofoldError(
                f"{self.path} cannot be written, and its report goes there: make it writable, or copy the folder "
                f"and report the copy"
            )


class ReadOnlyRunFolder(RunFolder):
    """The run folder as processes other than the first see it: they write nothing."""

    @contextmanager
    def held(self) -> Iterator[None]:
        yield

    def _append(self, name: str, line: str) -> None:
        pass

    def offsets(self) -> dict[str, int]:
        return {}

    def rewind(self, offsets: dict[str, int], step: int | None = None) -> None:
        pass

    def write(self, name: str, text: str) -> Path:  # noqa: ARG002 — the signature is the folder's
        return self.path / name
