"""The place of a new run: `NumberedPath` chooses its name, and `has_no_run_yet` says whether a folder can be used."""

import itertools
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from twofold.files import is_temporary, make_folder, sync
from twofold.runs.records import LOG


@dataclass(frozen=True)
class NumberedPath:
    """The path of a new run folder whose name Twofold chooses: `parent/stem-N` with the first free number N."""

    parent: Path
    stem: str

    def __str__(self) -> str:
        return str(self.path(1))

    def path(self, number: int) -> Path:
        """Return the path with this number. Its name needs no quotes in a shell."""
        plain = re.sub(r"[^\w.-]+", "-", self.stem)
        return self.parent / f"{plain}-{number}"

    def create(self) -> Path:
        """Create the folder with the first free number, and return its path.

        Processes that call this at the same time get different folders, because creating a folder is atomic.
        """
        make_folder(self.parent)
        for number in itertools.count(1):
            with suppress(FileExistsError):
                self.path(number).mkdir()
                break
        sync(self.parent)
        return self.path(number)

    def existing_runs(self) -> list[Path]:
        """Return the run folders with this parent and stem, the most recent first."""
        name = re.compile(re.escape(self.path(0).name[:-1]) + r"[0-9]+")
        configs = [path / "config.json" for path in self.parent.glob("*") if name.fullmatch(path.name)]
        started = {config.parent: config.stat().st_mtime_ns for config in configs if config.exists()}
        return sorted(started, key=lambda path: -started[path])


def has_no_run_yet(folder: Path) -> bool:
    """Whether a folder is empty except for what a process leaves that was killed before it wrote config.json."""

    def is_left(entry: Path) -> bool:
        is_log = entry.name == LOG and not entry.is_symlink() and entry.stat().st_size == 0
        return is_log or (is_temporary(entry) and entry.name.startswith(".config.json."))

    return all(map(is_left, folder.iterdir()))
