"""`Run`, the Python object of a run folder. `twofold.pretrain` returns it, and the other verbs accept it."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from twofold.config import Config
from twofold.config import load as load_config
from twofold.errors import TwofoldError
from twofold.methods import schema_of_run
from twofold.runs.folder import RunFolder


@dataclasses.dataclass(frozen=True)
class Run:
    """A run folder, to read its configuration, metrics and results.

    Parameters
    ----------
    path : str, Path or Run
        The run folder.

    Examples
    --------
    >>> run = twofold.Run("runs/frossl-photos-1")  # doctest: +SKIP
    >>> run.results["verdict"]["sentence"]  # doctest: +SKIP
    """

    path: Path

    def __init__(self, path: "str | Path | Run"):
        object.__setattr__(self, "path", Path(path))  # the dataclass is frozen

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def folder(self) -> RunFolder:
        """The object that reads and writes the files of the run folder."""
        return RunFolder.open(self.path)

    @property
    def config(self) -> Config:
        """The configuration of the run."""
        text = self.folder.config_text()
        try:
            return load_config(text, schema_of_run)
        except TwofoldError as error:
            raise TwofoldError(f"{self.path / 'config.json'} cannot be read: {error}") from None

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The losses and other measures, as one dict for each step at which they were logged."""
        return self.folder.read("metrics.jsonl")

    @property
    def spectrum(self) -> list[dict[str, Any]]:
        """The eigenvalues of features and embeddings over time, as dicts with `step`, `of` and `eigenvalues`."""
        return self.folder.read("spectrum.jsonl")

    @property
    def results(self) -> dict[str, Any] | None:
        """The verdict, accuracies and other results, or None while the run is not finished."""
        path = self.path / "results.json"
        try:
            return json.loads(path.read_text()) if path.exists() else None
        except ValueError:
            raise TwofoldError(
                f"{path} is damaged: it is not JSON; restore the file from a copy of the run folder"
            ) from None

    @property
    def report(self) -> Path:
        """The path of the report, `report.html`."""
        return self.path / "report.html"
