"""The files of a run that only grow: `metrics.jsonl` and `spectrum.jsonl`, the times and the log.

Each checkpoint contains their sizes and checksums, and so does `results.json` at the end. A resumed run continues the
records only if they begin with exactly what the checkpoint says.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

from twofold.checksums import KEY, extend
from twofold.files import open_regular, sync
from twofold.schema import either, fields, values, whole

LOG = "log.txt"
MOST_LOG_BYTES = 2**28
RECORDS = ("metrics.jsonl", "spectrum.jsonl")  # `resume` cuts them at the checkpoint and writes the rest again
LOGS = ("timing.jsonl", LOG)  # `resume` keeps them; they do not influence the run

# What an entry of `Checksums` contains in a file.
RECORDED = values(either(whole(), fields({"bytes": whole(), KEY: whole()})))

Checksums = Mapping[str, Any]  # name → size and checksum; only the size in checkpoints of format 2


class GrowingFiles:
    """Computes the sizes and checksums of the growing files of a run folder. It reads only what is new each time."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._known: dict[str, tuple[int, int]] = {}

    def checksums(self) -> dict[str, Any]:
        """Flush the files to the disk and return their sizes and checksums."""
        for name in (*RECORDS, *LOGS):
            path = self.folder / name
            if path.exists():
                sync(path)
                self._known[name] = extend(path, *self._known.get(name, (0, 0)))
        sync(self.folder)  # otherwise a power failure could lose a new file
        none = (0, 0)
        return {name: dict(zip(("bytes", KEY), self._known.get(name, none), strict=True)) for name in (*RECORDS, *LOGS)}

    def set_aside(self, name: str) -> None:
        """Rename a damaged file. The next one begins with nothing."""
        self._known.pop(name, None)
        with suppress(FileNotFoundError):
            (self.folder / name).rename(self.folder / f"{name}.damaged")

    def mend(self, name: str) -> None:
        """Remove the end of a log from the first line that a full disk or a power failure left incomplete or as zeros.

        What a checkpoint covers is intact, so only lines after the last checkpoint are removed.
        """
        path = self.folder / name
        with suppress(FileNotFoundError), open_regular(path) as file:
            lines = file.read(MOST_LOG_BYTES).splitlines(keepends=True)
            intact = takewhile(lambda line: line.endswith(b"\n") and b"\0" not in line, lines)
            size = sum(map(len, intact))
            if size != os.fstat(file.fileno()).st_size:
                os.truncate(path, size)

    def return_to(self, checksums: Checksums) -> None:
        """Continue from the sizes and checksums of a checkpoint, after the records were cut there."""
        self._known = {
            name: (found["bytes"], found[KEY])
            for name in RECORDS
            if isinstance(found := checksums.get(name), dict) and found["bytes"]
        }


def size_of(recorded: Any) -> int:
    """Return the size in bytes in an entry of `Checksums`."""
    return recorded["bytes"] if isinstance(recorded, dict) else int(recorded)


def find_record_damage(folder: Path, checksums: Checksums, names: tuple[str, ...] = RECORDS) -> str:
    """Return how the growing files differ from their checksums, in words, or "" if they do not.

    A file may be longer, because a run appends to it.
    """
    problems = [_find_damage(folder / name, checksums[name]) for name in names if name in checksums]
    return "; ".join(filter(None, problems))


def _find_damage(path: Path, recorded: Any) -> str:
    try:
        expected = size_of(recorded)
        size, checksum = extend(path, 0, 0, end=expected) if expected else (0, 0)
    except FileNotFoundError:
        return f"{path} is missing"
    except OSError as error:
        return f"{path} cannot be read ({error.strerror or error})"
    except (KeyError, TypeError, ValueError):
        return f"the recorded checksum of {path} is not one that Twofold wrote"
    if size < expected:
        return f"{path} has {size:,} bytes, but had {expected:,}"
    if isinstance(recorded, dict) and checksum != recorded.get(KEY):
        return f"{path} is damaged: its first {expected:,} bytes have another checksum than when they were written"
    return ""
