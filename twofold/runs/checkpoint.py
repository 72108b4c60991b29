"""Checkpoints: the complete state of a run after a step. Nothing is pickled, so loading one cannot run a program.

A run folder contains these files:

- `checkpoints/step-N/state.safetensors`: the tensors.
- `checkpoints/step-N/state.json`: everything else. In place of each tensor, it has the tensor's name.
- `checkpoints/step-N/config.json`: a copy of the run's configuration, in case the original is damaged.
- `checkpoints/step-N/checksums.json`: the checksums of these files.
- `checkpoints/latest`: the name of the newest complete checkpoint.

Twofold writes a checkpoint to a temporary folder, renames the folder and then replaces `latest`. A killed process
therefore never leaves `latest` with the name of an incomplete checkpoint. A checkpoint is read only if its files have
their checksums, and if the records of the run begin as they did when it was written.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from twofold.errors import TwofoldError, how_to_resume, other_format
from twofold.files import make_folder, read_regular, sync
from twofold.runs.checkpoint_folder import (
    FORMAT,
    MANIFEST,
    WITHOUT_CHECKSUMS,
    DamagedCheckpoint,
    latest_and_older,
    latest_name,
    list_checkpoints,
    set_latest,
    step_of,
    verify_files,
    write_manifest,
)
from twofold.runs.records import RECORDED, find_record_damage

MOST_STATE_BYTES = 2**28  # of state.json

Checkpoint = tuple[int, dict[str, Any]]  # the step and the state after it


def pack(tree: Any, tensors: dict[str, Tensor], path: str = "") -> Any:
    """Convert nested dicts, lists and tuples of tensors, numbers and text to values that JSON can represent.

    Parameters
    ----------
    tree
        The value to convert.
    tensors
        Receives a copy of each tensor, by its path in the tree, for example `/method/encoder.conv1.weight`.
    path
        The path of `tree` itself.

    Returns
    -------
    Any
        The value for `json.dumps`. `unpack` reverses the conversion.
    """
    if isinstance(tree, Tensor):
        # Cloned, because safetensors refuses tensors that share memory, such as expanded tensors or tied weights.
        tensors[path] = tree.detach().cpu().contiguous().clone()
        return {"tensor": path}
    if isinstance(tree, dict):
        # A list of pairs, because optimizers use integers as keys and JSON turns keys into text.
        return {"dict": [[key, pack(value, tensors, f"{path}/{key}")] for key, value in tree.items()]}
    if isinstance(tree, (list, tuple)):
        kind = "tuple" if isinstance(tree, tuple) else "list"
        return {kind: [pack(value, tensors, f"{path}/{number}") for number, value in enumerate(tree)]}
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return tree
    raise TypeError(
        f"the state has an object of type {type(tree).__name__} at {path}, which a checkpoint cannot contain"
    )


def unpack(packed: Any, tensors: dict[str, Tensor]) -> Any:
    """Return the value that `pack` converted."""
    if not isinstance(packed, dict):
        return packed
    ((kind, value),) = packed.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "dict":
        return {key: unpack(item, tensors) for key, item in value}
    items = [unpack(item, tensors) for item in value]
    return tuple(items) if kind == "tuple" else items


def save(
    folder: Path, step: int, state: dict[str, Any], keep: int, facts: Mapping[str, Any] = MappingProxyType({})
) -> Path:
    """Write a checkpoint and remove old ones.

    Parameters
    ----------
    folder
        The run folder.
    step
        The number of completed steps.
    state
        Nested dicts, lists and tuples of tensors, numbers and text.
    keep
        How many checkpoints to keep.
    facts
        Further values for checksums.json, which may differ between equal runs: the checksums of all growing files as
        `records`, and the `environment`.

    Returns
    -------
    Path
        The folder of the checkpoint.
    """
    root = folder / "checkpoints"
    final, aside = root / f"step-{step}", root / f".step-{step}.part"
    try:
        make_folder(root)
        if latest_name(root) != final.name:
            # A folder of this step exists already if a process was killed before it wrote `latest`. It is replaced,
            # because the repeated steps may have given other results.
            shutil.rmtree(final, ignore_errors=True)
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            tensors: dict[str, Tensor] = {}
            packed = {"format": FORMAT, "step": step, "state": pack(state, tensors)}
            save_file(tensors, aside / "state.safetensors")
            (aside / "state.json").write_text(json.dumps(packed))
            # safetensors lets only the owner read its files; the others of the run follow the umask.
            (aside / "state.safetensors").chmod((aside / "state.json").stat().st_mode)
            if (folder / "config.json").exists():
                shutil.copyfile(folder / "config.json", aside / "config.json")
            write_manifest(aside, step, facts)
            aside.rename(final)
            sync(root)  # before `latest` names it
        set_latest(root, step)
        prune(root, keep, newest=final.name)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise TwofoldError(
            f"the checkpoint of step {step} could not be written ({error}); earlier checkpoints are intact: free some "
            f"disk space, or make {folder} writable, then run `{how_to_resume(folder)}`"
        ) from None
    return final


def prune(root: Path, keep: int, newest: str) -> None:
    """Remove temporary folders, and all checkpoints except `newest` and the `keep - 1` checkpoints before it."""
    for leftover in root.glob(".*.part"):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
    newest_first = list_checkpoints(root)[::-1]
    # Checkpoints of later steps than `newest` are left from before the run was resumed: they were damaged, or `latest`
    # never named them.
    unused = [path for path in newest_first if step_of(path.name) > step_of(newest)]
    for path in unused + newest_first[len(unused) + keep :]:
        shutil.rmtree(path, ignore_errors=True)


def keep_newest(folder: Path, keep: int = 1) -> None:
    """Remove all checkpoints of a finished run except the newest ones. `resume` needs one to extend the run.

    `save` removes old checkpoints too, but a process that is killed before that leaves one more.
    """
    root = folder / "checkpoints"
    newest = latest_name(root)
    if newest is not None and (root / newest).is_dir():
        prune(root, keep, newest)


Misfit = Callable[[Any], str]  # state → why it does not fit the run, in words, or ""


def fits_any(_: Any) -> str:
    return ""


def load_latest(folder: Path, find_misfit: Misfit = fits_any) -> Checkpoint | None:
    """Load the latest checkpoint of a run folder, or return None if there is none yet.

    If it is damaged, or its state does not fit, this raises `DamagedCheckpoint`.
    """
    newest = next(iter(latest_and_older(folder / "checkpoints")), None)
    try:
        return None if newest is None else read_fitting(newest, find_misfit)
    except DamagedCheckpoint as error:
        raise DamagedCheckpoint(f"{error}; restore it from a copy of the run folder") from None


def load_newest_readable(
    folder: Path, warn: Callable[[str], None], find_misfit: Misfit = fits_any
) -> Checkpoint | None:
    """Load the newest checkpoint of a run folder that is not damaged and fits, or return None if there is none yet.

    If newer checkpoints are damaged, `warn` is called with one text about all of them. If all are damaged, this raises
    `DamagedCheckpoint`.
    """
    root = folder / "checkpoints"
    damaged: list[DamagedCheckpoint] = []
    for path in latest_and_older(root):
        try:
            step, state = read_fitting(path, find_misfit)
        except DamagedCheckpoint as error:
            damaged.append(error)
            continue
        if damaged:
            warn(f"{'; '.join(map(str, damaged))}; the run resumes from the checkpoint of step {step} instead")
        return step, state
    if damaged:
        raise DamagedCheckpoint(f"{'; '.join(map(str, damaged))}; no readable checkpoint is left: start a new run")
    return None


def read_fitting(path: Path, find_misfit: Misfit) -> Checkpoint:
    """Read the checkpoint in a folder. If it is damaged, or its state does not fit, raise `DamagedCheckpoint`."""
    step, state = read_checkpoint(path)
    if problem := find_misfit(state):
        raise DamagedCheckpoint(f"the checkpoint {path} does not fit the run: {problem}")
    return step, state


def read_checkpoint(path: Path) -> Checkpoint:
    """Read the checkpoint in a folder.

    If its files are damaged, or do not fit the records of the run, this raises `DamagedCheckpoint`.
    """
    verify_files(path)
    try:
        packed = json.loads(read_regular(path / "state.json", MOST_STATE_BYTES))
        tensors = load_file(path / "state.safetensors")
    except (OSError, ValueError, SafetensorError, RecursionError) as error:
        raise DamagedCheckpoint(f"the checkpoint {path} cannot be read: {error}") from None
    try:
        if packed["format"] not in (FORMAT, WITHOUT_CHECKSUMS):
            raise other_format(f"the checkpoint {path}", packed["format"], None, (WITHOUT_CHECKSUMS, FORMAT))
        if packed["format"] == FORMAT and not (path / MANIFEST).exists():
            raise DamagedCheckpoint(f"the checkpoint {path} is damaged: {MANIFEST} is missing")
        step, state = int(packed["step"]), unpack(packed["state"], tensors)
        if step != step_of(path.name):
            raise ValueError(f"it says that it is of step {str(step)[:20]}")
        records = state.get("records", {})
        if problem := RECORDED(records):
            raise ValueError(f"records{problem}")
        problem = find_record_damage(path.parents[1], records)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise DamagedCheckpoint(f"the checkpoint {path} is damaged: {error!r}") from None
    if problem:
        raise DamagedCheckpoint(f"the checkpoint {path} does not fit the records: {problem}")
    return step, state


def to_device(tree: Any, device: torch.device) -> Any:
    """Return nested dicts, lists and tuples with all tensors on the device."""
    if isinstance(tree, Tensor):
        return tree.to(device)
    if isinstance(tree, dict):
        return {key: to_device(value, device) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(to_device(value, device) for value in tree)
    return tree
