"""Check that the state in a checkpoint fits a run before any of it is loaded.

`Trainer.restore` calls `find_misfit`. If the newest checkpoint does not fit, the run resumes from an older one.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

SECTIONS = ("fingerprint", "method", "optimizer", "observers", "records")


def find_misfit(state: Any, method: Mapping[str, Any], optimizer: Optimizer, observers: Mapping[str, Any]) -> str:
    """Return where a state differs from the one that this run would save, in words, or "" if it fits.

    Parameters
    ----------
    state
        The state in a checkpoint.
    method, observers
        The current states of the method and of the observers.
    optimizer
        The optimizer of the run.
    """
    if not isinstance(state, dict):
        return "it has no state"
    missing = [name for name in SECTIONS if name not in state]
    if missing:
        return f"it has no {missing[0]}"
    if not isinstance(state["fingerprint"], str) or not isinstance(state["records"], dict):
        return "its fingerprint or records have another type"
    return (
        find_difference(state["method"], method, "method")
        or _optimizer_misfit(state["optimizer"], optimizer)
        or _observers_misfit(state["observers"], observers)
        or _rows_misfit(state.get("rows"))
    )


def find_difference(found: Any, expected: Any, place: str) -> str:
    """Return where two nested dicts of tensors differ in their keys, types or shapes, in words, or ""."""
    if isinstance(expected, Tensor):
        if not isinstance(found, Tensor):
            return f"{place} is not a tensor"
        if found.shape != expected.shape or found.dtype != expected.dtype:
            return f"{place} is {_kind(found)}, not {_kind(expected)}"
        return ""
    if not isinstance(expected, Mapping):
        return "" if isinstance(found, type(expected)) else f"{place} has another type"
    if not isinstance(found, dict):
        return f"{place} is missing"
    other = next(iter(sorted(map(str, found.keys() ^ expected.keys()))), None)
    if other is not None:
        return f"{place}.{other} is missing or not expected"
    return next(filter(None, (find_difference(found[key], expected[key], f"{place}.{key}") for key in expected)), "")


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _optimizer_misfit(state: Any, optimizer: Optimizer) -> str:
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    if not isinstance(state, dict):
        return "optimizer is not a dict"
    for number, values in state.items():
        if not isinstance(number, int) or not 0 <= number < len(weights) or not isinstance(values, dict):
            return f"optimizer.{number} belongs to no weight"
        for name, value in values.items():
            is_tensor = isinstance(value, Tensor) and value.shape in (weights[number].shape, ())
            if not (is_tensor or value is None or isinstance(value, (int, float))):
                return f"optimizer.{number}.{name} does not fit its weight"
    # Either all weights with a gradient have a state or none has, and all have the same one.
    return "" if len({tuple(sorted(map(str, values))) for values in state.values()}) <= 1 else "optimizer is incomplete"


def _observers_misfit(state: Any, observers: Mapping[str, Any]) -> str:
    if not isinstance(state, dict) or not isinstance(state.get("means"), dict):
        return "observers.means is missing"
    # The names of averages are those of the loss terms, which are not known before the first step.
    names, *columns = (state["means"].get(name) for name in ("names", "sums", "sound"))
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return "observers.means.names is not a list of names"
    for name, column in zip(("sums", "sound"), columns, strict=True):
        if not isinstance(column, Tensor) or column.shape != (len(names) + 1,):
            return f"observers.means.{name} does not fit its names"
    rest = {name: value for name, value in observers.items() if name != "means"}
    return find_difference({name: value for name, value in state.items() if name != "means"}, rest, "observers")


def _rows_misfit(rows: Any) -> str:
    if rows is None:
        return ""
    if not isinstance(rows, dict) or not isinstance(rows.get("steps"), int):
        return "rows has no steps"
    in_memory = {name: value for name, value in rows.items() if name in ("rows", "schedule")}
    if in_memory and (len(in_memory) < 2 or not all(isinstance(value, Tensor) for value in in_memory.values())):
        return "rows is incomplete"
    return ""
