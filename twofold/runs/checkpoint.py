"""Checkpoints: the whole state of a run in safetensors and JSON, written aside and renamed, never a pickle.

checkpoints/step-N/state.safetensors holds the tensors, state.json everything else with tensors named in their place.
checkpoints/latest names the newest complete one and is replaced last, so a kill at any moment leaves a valid pointer.
"""

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from twofold.errors import TwofoldError, how_to_resume
from twofold.files import sync, write_atomically

FORMAT = 2

Saved = tuple[int, dict[str, Any]]  # step and state


class Damaged(TwofoldError):
    """A checkpoint that is not as it was written."""


def pack(tree: Any, tensors: dict[str, Tensor], path: str = "") -> Any:
    """JSON for a tree of dicts, lists, numbers and tensors; the tensors move to `tensors` under their path."""
    if isinstance(tree, Tensor):
        # A copy of its own: safetensors refuses tensors that share memory, such as expanded or tied ones.
        tensors[path] = tree.detach().cpu().contiguous().clone()
        return {"tensor": path}
    if isinstance(tree, dict):
        # Pairs, because optimizers key their state by numbers and JSON knows only text.
        return {"dict": [[key, pack(value, tensors, f"{path}/{key}")] for key, value in tree.items()]}
    if isinstance(tree, (list, tuple)):
        kind = "tuple" if isinstance(tree, tuple) else "list"
        return {kind: [pack(value, tensors, f"{path}/{number}") for number, value in enumerate(tree)]}
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return tree
    raise TypeError(f"a checkpoint cannot hold a {type(tree).__name__} at {path}")


def unpack(packed: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(packed, dict):
        return packed
    ((kind, value),) = packed.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "dict":
        return {key: unpack(item, tensors) for key, item in value}
    items = [unpack(item, tensors) for item in value]
    return tuple(items) if kind == "tuple" else items


def save(folder: Path, step: int, state: dict[str, Any], keep: int) -> Path:
    """Write state as checkpoints/step-N of the run folder and prune the oldest beyond `keep`."""
    root = folder / "checkpoints"
    final, aside = root / f"step-{step}", root / f".step-{step}.part"
    try:
        root.mkdir(exist_ok=True)
        if latest_name(root) != final.name:
            # One that the pointer never named may be of a run that went on otherwise.
            shutil.rmtree(final, ignore_errors=True)
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            tensors: dict[str, Tensor] = {}
            packed = {"format": FORMAT, "step": step, "state": pack(state, tensors)}
            save_file(tensors, aside / "state.safetensors")
            (aside / "state.json").write_text(json.dumps(packed))
            for name in ("state.safetensors", "state.json"):
                sync(aside / name)
            sync(aside)
            aside.rename(final)
        point_at(root, step)
        prune(root, keep, newest=final.name)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise TwofoldError(
            f"the checkpoint of step {step} could not be written ({error}); those before it, if any, are untouched: "
            f"make room, then `{how_to_resume(folder)}`"
        ) from None
    return final


def latest_name(root: Path) -> str | None:
    pointer = root / "latest"
    return Path(pointer.read_text(errors="replace").strip()).name if pointer.exists() else None


def point_at(root: Path, step: int) -> None:
    if latest_name(root) != f"step-{step}":
        write_atomically(root / "latest", f"step-{step}\n")


def step_of(name: str) -> float:
    """Infinite for what is no name of a checkpoint."""
    found = re.fullmatch(r"step-(\d+)", name)
    return int(found[1]) if found else math.inf


def complete(root: Path) -> list[Path]:
    """Oldest first."""
    return sorted((path for path in root.iterdir() if step_of(path.name) < math.inf), key=lambda p: step_of(p.name))


def prune(root: Path, keep: int, newest: str) -> None:
    for leftover in root.glob(".*.part"):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
    newest_first = complete(root)[::-1]
    # Later steps than the newest were given up: they were damaged, or the pointer never named them.
    given_up = [path for path in newest_first if step_of(path.name) > step_of(newest)]
    for unwanted in given_up + newest_first[len(given_up) + keep :]:
        shutil.rmtree(unwanted, ignore_errors=True)


def load_latest(folder: Path) -> Saved | None:
    """Of the newest complete checkpoint; None where the run was stopped before its first."""
    newest = next(iter(pointed_and_older(folder / "checkpoints")), None)
    return None if newest is None else read_checkpoint(newest)


def load_sound(folder: Path, notice: Callable[[str], None]) -> Saved | None:
    """Of the newest checkpoint that can be read; `notice` is told of those that cannot."""
    root = folder / "checkpoints"
    damaged: list[Damaged] = []
    for path in pointed_and_older(root):
        try:
            step, state = read_checkpoint(path)
        except Damaged as error:
            damaged.append(error)
            continue
        if damaged:
            notice(f"{'; '.join(map(str, damaged))}; going on from step {step}, whose checkpoint is sound")
        return step, state
    if damaged:
        raise Damaged(f"{'; '.join(map(str, damaged))}; no checkpoint is left to go on from: start the run anew")
    return None


def pointed_and_older(root: Path) -> list[Path]:
    """Newest first. One that is newer than the pointer's may be of a run that went on otherwise; a pointer that is not
    there was lost in a copy, or not written yet."""
    name = latest_name(root)
    if name is None:
        return complete(root)[::-1] if root.is_dir() else []
    return [root / name, *(path for path in reversed(complete(root)) if step_of(path.name) < step_of(name))]


def read_checkpoint(path: Path) -> Saved:
    try:
        packed = json.loads((path / "state.json").read_text())
        tensors = load_file(path / "state.safetensors")
    except (OSError, ValueError, SafetensorError, RecursionError) as error:
        raise Damaged(f"the checkpoint {path} cannot be read: {error}") from None
    try:
        if packed.get("format") != FORMAT:
            raise TwofoldError(f"the checkpoint {path} has format {packed.get('format')}, this version reads {FORMAT}")
        return int(packed["step"]), unpack(packed["state"], tensors)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise Damaged(f"the checkpoint {path} is damaged: {error!r}") from None


def to_device(tree: Any, device: torch.device) -> Any:
    if isinstance(tree, Tensor):
        return tree.to(device)
    if isinstance(tree, dict):
        return {key: to_device(value, device) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(to_device(value, device) for value in tree)
    return tree
