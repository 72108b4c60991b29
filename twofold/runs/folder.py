"""The run folder. All its files can be read without Twofold.

- `config.json`: the configuration.
- `metrics.jsonl`, `spectrum.jsonl`: the records. They depend only on the configuration and the data. On a CPU, a
  resumed run and a run that was never stopped have the same records, to the last bit.
- `timing.jsonl`: times and speeds. They are in a separate file because they differ from run to run.
- `log.txt`: the lines that the run printed.
- `images.npz`: hashes of the training images.
- `skipped.txt`: images that could not be read, if there are any.
- `initial.safetensors`: the initial weights, if the run uses `init`.
- `untrained.safetensors`: the weights of the user's own module before training, if the run trains one.
- `checkpoints/`: what `twofold resume` needs.
- `head/`: the rows of a per-image classifier, if they are stored on disk and `head.path` is not set.
- `encoder.safetensors`: the trained encoder.
- `classifier.safetensors`: the trained encoder with its classifier, if the run was trained with labels (`supervised`).
- `results.json`: the verdict and the accuracies at the end.
- `pictures.json`: the thumbnails and the map of the report.
- `report.html`: the report.
- `tensorboard/`: the metrics for TensorBoard, if the run uses `log=tensorboard`.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from twofold.checksums import Damaged
from twofold.config import refuse_other_format
from twofold.errors import Interrupted, Stopped, TwofoldError, how_to_report, how_to_resume, path_close_to
from twofold.files import (
    FULL,
    is_writable,
    make_folder,
    open_in_place,
    open_regular,
    read_regular,
    refuse_links,
    refuse_special,
    try_lock,
    write_atomically,
)
from twofold.runs.checkpoint_folder import read_manifest, read_recorded_checksums, set_latest
from twofold.runs.contents import CONFIG, LINES, RESULTS
from twofold.runs.new_folder import NumberedPath, has_no_run_yet
from twofold.runs.records import LOG, LOGS, RECORDS, Checksums, GrowingFiles, find_record_damage, size_of
from twofold.schema import MOST_BYTES, anything, read_json
from twofold.text import printable

if TYPE_CHECKING:
    from twofold.runs.checkpoint import Checkpoint

# A run adds to these files and folders in place. It replaces other files by new ones.
WRITTEN_IN_PLACE = (*RECORDS, *LOGS, "checkpoints", "head", "tensorboard", "wandb")
READ_FROM = ("*", "checkpoints/*", "checkpoints/*/*", "head/*")  # where the files of a run are
MOST_RECORDED_BYTES = 2**28  # of a file of records
RESTORE = "restore the file from a copy of the run folder, or train again"
REPORT_FILES = ("pictures.json", "report.html")  # `twofold report` creates them again


class RunFolder:
    """Reads and writes the files of a run folder.

    Parameters
    ----------
    path
        The folder. `create` and `open` check it first.
    """

    def __init__(self, path: Path):
        self.path = path
        self._growing = GrowingFiles(path)

    @staticmethod
    def refuse_existing(path: Path) -> None:
        """Raise an error if the path exists, unless it is an empty folder, or one whose run never began."""
        if path.exists() and not (path.is_dir() and has_no_run_yet(path)):
            is_run = (path / "config.json").exists()
            advice = f", or continue this run with `{how_to_resume(path)}`" if is_run else ""
            raise TwofoldError(f"{path} exists already; choose another --out{advice}")

    @classmethod
    def create(cls, place: Path | NumberedPath, config: str) -> "RunFolder":
        """Create a run folder and write its configuration. Existing files are never changed.

        Parameters
        ----------
        place
            The path of the folder, or a `NumberedPath`, which chooses the number.
        config
            The content of `config.json`.
        """
        if isinstance(place, Path):
            cls.refuse_existing(place)
        claimed: Path | None = None
        try:
            path = place.create() if isinstance(place, NumberedPath) else place
            make_folder(path)
            # Of several processes that find the folder empty at the same time, only one can lock the log, and the next
            # one finds a run. The log of a killed process stays, but its lock ends.
            with os.fdopen(open_in_place(path / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "a") as log:
                if not try_lock(log):
                    raise TwofoldError(f"{path} is in use by another process, which starts a run; choose another --out")
                cls.refuse_existing(path)
                claimed = path / LOG
                write_atomically(path / "config.json", config)
        except OSError as error:
            if claimed is not None:
                claimed.unlink(missing_ok=True)  # the folder is empty again, so that the user can repeat the command
            raise TwofoldError(
                f"the run folder {place} could not be written: {error.strerror}; free some disk space, or choose "
                "another --out"
            ) from None
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Return the run folder at this path, or raise an error if it is not one."""
        if not path.is_dir():
            close = path_close_to(path)
            advice = "check the path" if close is None else f"did you mean {close}?"
            raise TwofoldError(f"there is no run folder {path}; {advice}")
        if any(path.iterdir()) and has_no_run_yet(path):
            raise TwofoldError(
                f"{path} has no run yet, because its start was interrupted before it wrote config.json; start it again "
                "with the same `twofold pretrain` command"
            )
        refuse_special(file for pattern in READ_FROM for file in path.glob(pattern))
        if not (path / "config.json").exists():
            raise TwofoldError(f"{path} is not a run folder: it has no config.json; check the path")
        return cls(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run during the block, so that no other process trains it and writes to the same files.

        A KeyboardInterrupt in the block becomes `Stopped`, which names the run. `Interrupted` names it already.
        """
        self.refuse_links()
        try:
            config = open_regular(self.path / "config.json")
        except OSError as error:
            raise TwofoldError(f"{self.path / 'config.json'} cannot be read ({error.strerror}); {RESTORE}") from None
        with config as file:
            if not try_lock(file):
                raise TwofoldError(
                    f"{self.path} is in use by another process, which trains it; wait until that process ends"
                )
            try:
                yield
            except KeyboardInterrupt as stop:
                raise stop if isinstance(stop, Interrupted) else Stopped(self.path) from None

    def refuse_links(self) -> None:
        """Raise an error if a write of the run would change something outside its folder."""
        refuse_links(self.path / name for name in WRITTEN_IN_PLACE)
        for folder in ("checkpoints", "head"):
            refuse_links(sorted((self.path / folder).rglob("*")))

    def config_text(self) -> str:
        """Return the content of `config.json`."""
        path = self.path / "config.json"
        try:
            return read_regular(path, MOST_BYTES).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise TwofoldError(f"{path} cannot be read as text ({error}); {RESTORE}") from None

    def config_record(self) -> dict[str, Any]:
        """Return the content of `config.json`: `values`, `origin` and `derived`.

        The keys are not checked, because this process may not know the run's method.
        """
        return read_json(self.path / "config.json", CONFIG, RESTORE, refuse_other_format)

    def results(self) -> dict[str, Any] | None:
        """Return the content of `results.json`, or None while the run is not finished."""
        path = self.path / "results.json"
        return read_json(path, RESULTS, RESTORE) if path.exists() else None

    def append(self, name: str, record: dict[str, Any]) -> None:
        """Append a record to a file, as a line of JSON. Only a checkpoint makes it safe against a power failure."""
        self._append(name, json.dumps(record))

    def log(self, line: str) -> None:
        """Append a line to `log.txt`."""
        self._append(LOG, printable(line))

    def _append(self, name: str, line: str) -> None:
        try:
            handle = open_in_place(self.path / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            with os.fdopen(handle, "a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(line + "\n")
        except OSError as error:
            raise self._write_error(name, error) from None

    def read(self, name: str) -> list[dict[str, Any]]:
        """Return all records of a file, or an empty list if the file does not exist. A damaged file is refused."""
        path = self.path / name
        problem = find_record_damage(self.path, self.recorded_checksums(), (name,))
        if problem:
            raise Damaged(f"{problem}; restore the file from a copy of the run folder")
        if not path.exists():
            return []
        advice = "restore the file, or remove that line"
        try:
            *complete, _ = read_regular(path, MOST_RECORDED_BYTES).split(b"\n")
            # A process that was killed while it wrote leaves an incomplete last line, which `rewind` removes.
            records = [json.loads(line) for line in complete]
        except OSError as error:
            raise TwofoldError(f"{path} cannot be read ({error.strerror or error}); {RESTORE}") from None
        except (ValueError, RecursionError):
            raise TwofoldError(f"{path} is damaged: it has a line that is not JSON; {advice}") from None
        check = LINES.get(name, anything)
        for number, record in enumerate(records, start=1):
            if problem := check(record):
                raise TwofoldError(f"{path} is damaged: line {number}{problem}; {advice}")
        return records

    def recorded_checksums(self) -> dict[str, Any]:
        """Return the checksums of the records at the end of the run, or else at its latest checkpoint."""
        if (results := self.results()) is None:
            return read_recorded_checksums(self.path / "checkpoints")
        return results.get("records", {})  # runs of earlier versions have none

    def record_checksums(self) -> dict[str, Any]:
        """Flush the records and the log to the disk. Each checkpoint contains the sizes and checksums returned."""
        return self._growing.checksums()

    def load_checkpoint(
        self,
        say: Callable[[str], None],
        *,
        allow_older: bool,
        find_misfit: Callable[[Any], str] = lambda _: "",
        environment: Mapping[str, Any] = MappingProxyType({}),
    ) -> "Checkpoint | None":
        """Load the latest checkpoint, or return None if there is none yet.

        If it is damaged and `allow_older` is true, an older checkpoint is loaded instead. This, and another
        `environment`, gives a warning, which is passed to `say` and written to the log. `find_misfit` says why a state
        does not fit the run, or returns "".
        """
        # Imported here because it imports torch, which reports of runs do not need.
        from twofold.runs.checkpoint import load_latest, load_newest_readable
        from twofold.runs.environment import explain_differences

        def warn(text: str) -> None:
            say(text)
            self.log(text)

        found = (
            load_newest_readable(self.path, warn, find_misfit) if allow_older else load_latest(self.path, find_misfit)
        )
        if found is not None:
            facts = read_manifest(self.path / "checkpoints" / f"step-{found[0]}")
            for name in LOGS:
                problem = find_record_damage(self.path, facts.get("records", {}), (name,))
                if problem:
                    self.set_aside(name)
                    warn(f"{problem}; it does not influence the run, and a new one begins")
            changed = explain_differences(facts.get("environment", {}), environment)
            if changed:
                warn(changed)
        return found

    def set_aside(self, name: str) -> None:
        """Rename a damaged file, so that the run can begin a new one."""
        self._growing.set_aside(name)

    def rewind(self, checksums: Checksums, step: int | None = None) -> None:
        """Remove the records after a checkpoint. The resumed run writes them again.

        Parameters
        ----------
        checksums
            The sizes and checksums of the files at the checkpoint, from `record_checksums`. A file without them is
            emptied.
        step
            The step of the checkpoint, which becomes the latest. None if the run starts from the beginning.
        """
        problem = find_record_damage(self.path, checksums)
        if problem:  # records are never invented: `truncate` would fill a shorter file with zeros
            raise TwofoldError(f"{problem}; restore the file from a copy of the run folder, or start a new run")
        try:
            if step is not None:
                set_latest(self.path / "checkpoints", step)
        except OSError as error:
            raise self._write_error("checkpoints/latest", error) from None
        for name in RECORDS:
            path = self.path / name
            try:
                if path.exists():
                    os.truncate(path, size_of(checksums.get(name, 0)))
            except OSError as error:
                raise self._write_error(name, error) from None
        for name in LOGS:
            try:
                self._growing.mend(name)
            except OSError as error:
                raise self._write_error(name, error) from None
        self._growing.return_to(checksums)

    def write(self, name: str, text: str) -> Path:
        """Write a file, or replace it, and return its path."""
        try:
            write_atomically(self.path / name, text)
        except OSError as error:
            raise self._write_error(name, error) from None
        return self.path / name

    def _write_error(self, name: str, error: OSError) -> TwofoldError:
        problem = f"{self.path / name} could not be written ({error.strerror or error})"
        remedy = "free some disk space" if error.errno in FULL else f"make {self.path} writable"
        if name in REPORT_FILES:
            return TwofoldError(f"{problem}: {remedy}, then run `{how_to_report(self.path)}`")
        return TwofoldError(
            f"{problem}; the last checkpoint is intact: {remedy}, then run `{how_to_resume(self.path)}`"
        )

    def refuse_unwritable(self) -> None:
        """Raise an error if the folder is not writable. Call this before the report is created, so no work is lost."""
        if not is_writable(self.path):
            raise TwofoldError(
                f"{self.path} is not writable, and the report is written to it: make it writable, or copy the folder "
                "and create the report of the copy"
            )


class ReadOnlyRunFolder(RunFolder):
    """The run folder in all processes of a run except the first. It reads files and writes nothing."""

    @contextmanager
    def locked(self) -> Iterator[None]:
        yield

    def _append(self, name: str, line: str) -> None:
        pass

    def set_aside(self, name: str) -> None:
        pass

    def record_checksums(self) -> dict[str, Any]:
        return {}

    def rewind(self, checksums: Checksums, step: int | None = None) -> None:
        pass

    def write(self, name: str, text: str) -> Path:  # noqa: ARG002 — the signature of RunFolder
        return self.path / name


def adapter_file(encoder: Path) -> Path:
    """Return the path of the adapter for a file of an encoder.

    For `encoder.safetensors`, this is `adapter.safetensors`; for `NAME.safetensors`, it is `NAME.adapter.safetensors`.
    """
    name = "adapter" if encoder.stem == "encoder" else f"{encoder.stem}.adapter"
    return encoder.with_name(f"{name}.safetensors")
