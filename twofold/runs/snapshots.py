"""The encoder at a few earlier steps of a run, among which `select=best` chooses at the end.

The files are next to the checkpoints. Each is written after its step and before the next checkpoint, so a resumed run
has the files of all steps before the checkpoint and writes the later ones again. The end of the
run removes them.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from safetensors import SafetensorError
from torch import Tensor, nn

from twofold.errors import TwofoldError, how_to_resume
from twofold.runs.tensor_files import load_tensors, save_tensors

PARTS = 4  # the encoder is kept after each of these parts of the run, except the last


def steps_of(total: int) -> list[int]:
    """Return the steps after which the encoder is kept, ascending: a quarter, a half and three quarters of the run."""
    return sorted({total * part // PARTS for part in range(1, PARTS)} - {0, total})


def save_snapshot(run: Path, step: int, encoder: nn.Module) -> None:
    """Write the encoder after a step."""
    path = snapshot_path(run, step)
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise TwofoldError(
            f"{path.parent} could not be written ({error}): make {run} writable, then run `{how_to_resume(run)}`"
        ) from None
    save_tensors(path, encoder.state_dict(), {})


def load_snapshots(run: Path, total: int, warn: Callable[[str], None]) -> dict[int, dict[str, Tensor]]:
    """Return the weights of the encoder by step. A file that is missing or damaged is left out, and `warn` says so."""
    found = {}
    for step in steps_of(total):
        try:
            found[step] = load_tensors(snapshot_path(run, step))
        except (OSError, SafetensorError, TwofoldError) as error:
            reason = f"{snapshot_path(run, step)} cannot be read: {error}" if isinstance(error, OSError) else str(error)
            warn(f"the encoder of step {step} cannot be chosen: {reason}")
    return found


def remove_snapshots(run: Path) -> None:
    for path in (run / "checkpoints").glob("encoder-*.safetensors"):
        with suppress(OSError):  # it only takes space
            path.unlink()


def snapshot_path(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"encoder-{step}.safetensors"
