"""The folder `checkpoints`: which checkpoints there are, which is the latest, and whether their files are intact.

`checkpoint.py` writes and reads their content. This module does not import torch, so reports are written quickly.
"""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twofold.checksums import KEY, file_checksum, find_damage, seal
from twofold.errors import TwofoldError, other_format
from twofold.files import read_regular, sync, write_atomically
from twofold.runs.records import RECORDED
from twofold.schema import either, fields, items, read_json, text, values, whole
from twofold.version import __version__

FORMAT = 3
WITHOUT_CHECKSUMS = 2  # the format before, which can still be read
MANIFEST = "checksums.json"
MOST_POINTER_BYTES = 1000  # of the file `latest`
MANIFEST_CONTENT = fields(
    {"format": whole()},
    {
        "twofold": text,
        "files": values(fields({"bytes": whole(), KEY: items(whole())})),
        "records": RECORDED,
        "environment": values(either(text, whole())),
    },
)


class DamagedCheckpoint(TwofoldError):
    """A checkpoint cannot be read, or its content is incomplete."""


def latest_name(root: Path) -> str | None:
    """Return the name of the newest complete checkpoint, or None if the file `latest` is missing or damaged."""
    try:
        name = read_regular(root / "latest", MOST_POINTER_BYTES).decode(errors="replace").strip()
    except OSError:
        return None
    return name if step_of(name) < math.inf else None


def set_latest(root: Path, step: int) -> None:
    """Write the checkpoint's name to the file `latest`, unless the file has this name already."""
    if latest_name(root) != f"step-{step}":
        write_atomically(root / "latest", f"step-{step}\n")


def step_of(name: str) -> float:
    """Return the step of a checkpoint's folder by its name, or infinity if the name has another form."""
    found = re.fullmatch(r"step-([0-9]{1,15})", name)
    return int(found[1]) if found else math.inf


def list_checkpoints(root: Path) -> list[Path]:
    """Return the folders of all checkpoints, oldest first."""
    return sorted((path for path in root.iterdir() if step_of(path.name) < math.inf), key=lambda p: step_of(p.name))


def latest_and_older(root: Path) -> list[Path]:
    """Return the folders of the latest checkpoint and of all older ones, newest first.

    Checkpoints of later steps are left out: either the run was resumed from an earlier step, or a process was killed
    before it wrote `latest`. If the file `latest` does not exist or names no checkpoint, all checkpoints are returned:
    the file was lost in a copy, is damaged, or is not written yet.
    """
    name = latest_name(root)
    if name is None or not (root / name).is_dir():
        return list_checkpoints(root)[::-1] if root.is_dir() else []
    return [root / name, *(path for path in reversed(list_checkpoints(root)) if step_of(path.name) < step_of(name))]


def write_manifest(aside: Path, step: int, facts: Mapping[str, Any]) -> None:
    """Write the checksums of all files of a checkpoint and `facts`, and flush everything to the disk."""
    files = {path.name: file_checksum(path) for path in sorted(aside.iterdir())}
    manifest = {"format": FORMAT, "twofold": __version__, "step": step, "files": files, **facts}
    (aside / MANIFEST).write_text(json.dumps(seal(manifest)) + "\n")
    for name in (*files, MANIFEST):
        sync(aside / name)
    sync(aside)


def verify_files(path: Path) -> None:
    """Raise `DamagedCheckpoint` if a file of a checkpoint does not have its checksum."""
    files = read_manifest(path).get("files", {})
    problems = [find_damage(path / name, checksum) for name, checksum in files.items()]
    if any(problems):
        raise DamagedCheckpoint(f"the checkpoint {path} is damaged: {'; '.join(filter(None, problems))}")


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the checksums and facts of a checkpoint; empty for format 2, which had none."""
    if not (path / MANIFEST).exists():
        return {}
    try:
        manifest = read_json(path / MANIFEST, MANIFEST_CONTENT, "restore it from a copy")
    except TwofoldError as error:
        raise DamagedCheckpoint(f"the checkpoint {path} cannot be read: {error}") from None
    if manifest["format"] != FORMAT:
        raise other_format(
            f"the checkpoint {path}", manifest["format"], manifest.get("twofold"), (WITHOUT_CHECKSUMS, FORMAT)
        )
    return manifest


def read_recorded_checksums(root: Path) -> dict[str, Any]:
    """Return the checksums of the growing files in the latest checkpoint; empty if there are none."""
    try:
        newest = next(iter(latest_and_older(root)), None)
        records = {} if newest is None else read_manifest(newest).get("records", {})
    except (OSError, TwofoldError):  # `resume` and `check` report a damaged checkpoint
        return {}
    return records
