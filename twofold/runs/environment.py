"""What besides the configuration and the images the last bits of a result depend on: versions, threads, the device."""

from collections.abc import Mapping
from typing import Any

import torch

from twofold import dist
from twofold.version import __version__


def describe(device: torch.device) -> dict[str, Any]:
    """Return the environment of this process, for a checkpoint."""
    return {
        "Twofold": __version__,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "processes": dist.count(),
        "device": device.type,
    }


def explain_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return what has changed since a checkpoint, in words, or "" if nothing has."""
    changed = [
        f"{name} {before[name]}, now {now[name]}" for name in now if name in before and before[name] != now[name]
    ]
    if not changed:
        return ""
    return f"the run was saved with {'; '.join(changed)}: its results may differ from those of an uninterrupted run"
