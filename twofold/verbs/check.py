"""`twofold check`: verify the checksums of all files of a run, and say what can be recovered."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

from PIL import Image
from safetensors import SafetensorError, safe_open

from twofold.config import Head
from twofold.errors import TwofoldError, how_to_report, how_to_resume
from twofold.files import refuse_special
from twofold.models.sample_head.row_checks import find_damaged_in
from twofold.report import gallery
from twofold.runs.checkpoint import read_checkpoint
from twofold.runs.checkpoint_folder import latest_and_older
from twofold.runs.images_record import read_trained_images
from twofold.runs.records import LOGS, RECORDS, find_record_damage
from twofold.runs.run import Run, is_encoder_folder
from twofold.runs.tensor_files import refuse_damaged
from twofold.schema import anything, read_json

UNREADABLE = (OSError, ValueError, KeyError, TypeError, SafetensorError)


@dataclass(frozen=True)
class Checked:
    """A file or folder of a run, and what is wrong with it."""

    name: str
    problem: str  # "" if it is intact


@dataclass(frozen=True)
class Report:
    """What `check` found."""

    files: list[Checked]
    recovery: str  # what can be recovered, in words

    @property
    def damaged(self) -> list[Checked]:
        return [file for file in self.files if file.problem]


def check(run: str | Path | Run) -> Report:
    """Verify all files of a run. This changes nothing.

    Parameters
    ----------
    run : str, Path or Run
        The run folder, or a folder that `adapt` or `export` wrote. No process may train the run meanwhile.

    Returns
    -------
    Report
        Each file with its problem, and what can be recovered. Files that Twofold can write again, such as the report,
        are not verified.
    """
    if is_encoder_folder(Path(run)):
        return check_encoder_folder(Path(run))
    opened = Run(run)
    path = opened.folder.path
    checkpoints = latest_and_older(path / "checkpoints")
    states: dict[str, Any] = {}
    files = [tried("config.json", lambda: opened.config)]
    files += [tried(name, work) for name, work in single_files(opened)]
    for folder in checkpoints:

        def load(folder: Path = folder) -> None:
            states[folder.name] = read_checkpoint(folder)

        files.append(tried(f"checkpoints/{folder.name}", load))
    rows = rows_folder(opened, files)
    if rows is not None and checkpoints:
        newest = states.get(checkpoints[0].name)
        files.append(tried(str(rows), lambda: verify_rows(rows, newest)))
    return Report(files, recovery(path, files, checkpoints, list(states), rows is not None))


def check_encoder_folder(path: Path) -> Report:
    """Verify the files of a folder that holds an encoder alone, as `adapt` and `export` write it.

    Its model card has no checksum, because its owner edits it.
    """
    files = [tried(file.name, partial(verify_tensors, file)) for file in sorted(path.glob("*.safetensors"))]
    for file in sorted(path.glob("*.json")):
        files.append(tried(file.name, partial(read_json, file, anything, "restore the file from a copy")))
    files += [tried(file.name, partial(verify_picture, file)) for file in sorted(path.glob("*.png"))]
    damaged = any(file.problem for file in files)
    return Report(files, "restore the damaged files from a copy" if damaged else "all of these files are intact")


def verify_picture(file: Path) -> None:
    """Raise an error if a PNG file is damaged. The format has a checksum for each of its parts."""
    try:
        with Image.open(file) as picture:
            picture.verify()
    except SyntaxError as error:  # what Pillow raises for a wrong checksum
        raise TwofoldError(f"{file} is damaged ({error}); restore the file from a copy") from None


def tried(name: str, work: Callable[[], object]) -> Checked:
    """Return what is wrong with a file, as the error of the function that reads it says."""
    try:
        work()
    except (TwofoldError, *UNREADABLE) as error:
        return Checked(name, str(error) or repr(error))
    return Checked(name, "")


def single_files(run: Run) -> Iterator[tuple[str, Callable[[], object]]]:
    """Return each file outside the checkpoints, and a function that raises an error if it is damaged."""
    path, folder = run.path, run.folder
    for name in (*RECORDS, *LOGS):

        def verify(name: str = name) -> None:
            problem = find_record_damage(path, folder.recorded_checksums(), (name,))
            if problem:
                raise TwofoldError(problem)

        if (path / name).exists() or name in RECORDS:
            yield name, verify
    if (path / "images.npz").exists():
        yield "images.npz", lambda: read_trained_images(path)
    for file in sorted((*path.glob("*.safetensors"), *path.glob("checkpoints/*.safetensors"))):
        yield str(file.relative_to(path)), partial(verify_tensors, file)
    if (path / "results.json").exists():
        yield "results.json", lambda: run.results
    if (path / gallery.FILE).exists():
        yield gallery.FILE, lambda: gallery.read_pictures(folder)


def verify_tensors(file: Path) -> None:
    refuse_damaged(file)
    with safe_open(file, framework="pt") as opened:
        opened.keys()


def rows_folder(run: Run, files: list[Checked]) -> Path | None:
    """Return the folder of the rows of a per-image classifier, or None if there are none on disk."""
    settings = None if files[0].problem else run.config.parameters.get("head")
    own = settings.path if isinstance(settings, Head) else None
    folder = run.path / "head" if own is None else Path(own)
    return folder if (folder / "head.json").exists() else None


def verify_rows(rows: Path, newest: Any) -> None:
    refuse_special(rows.glob("*"))
    description = json.loads((rows / "head.json").read_text())
    if newest is None:
        raise TwofoldError(f"{rows} cannot be verified, because the checkpoint that it belongs to is damaged")
    damaged = find_damaged_in(rows, newest[1]["rows"]["steps"])
    if damaged:
        raise TwofoldError(
            f"{len(damaged):,} of {description['rows']:,} rows in {rows} are damaged, such as {damaged[0]}"
        )


def recovery(path: Path, files: list[Checked], checkpoints: list[Path], intact: list[str], has_rows: bool) -> str:
    """Return what can be recovered, in words."""
    damaged = {file.name for file in files if file.problem}
    if not damaged:
        return "all of these files are intact"
    copies = [folder / "config.json" for folder in checkpoints if folder.name in intact]
    if "config.json" in damaged and copies:
        return (
            f"copy the configuration from a checkpoint: cp {quote(str(copies[0]))} {quote(str(path / 'config.json'))}"
        )
    if (path / "results.json").exists():
        usable = "the encoder is intact" if "encoder.safetensors" not in damaged else "the encoder is damaged"
        redo = f"; `{how_to_report(path)}` writes the pictures again" if gallery.FILE in damaged else ""
        return f"the run is finished, and {usable}{redo}; restore the damaged files from a copy"
    if has_rows and any(name.endswith("head") or name.startswith("checkpoints/step") for name in damaged):
        return "a per-image classifier on disk cannot return to an older checkpoint: restore the folder from a copy"
    if intact:
        return f"`{how_to_resume(path)}` continues from the checkpoint {intact[0]}"
    return "no checkpoint is intact: restore the folder from a copy, or start a new run"
