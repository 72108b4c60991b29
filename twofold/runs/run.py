"""A run folder as a program reads it: `Run`, which `twofold.pretrain` returns and every verb takes."""

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
    """A run folder, read."""

    path: Path

    def __init__(self, path: "str | Path | Run"):
        object.__setattr__(self, "path", Path(path))  # frozen otherwise

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def folder(self) -> RunFolder:
        return RunFolder.open(self.path)

    @property
    def config(self) -> Config:
        text = self.folder.config_text()
        try:
            return load_config(text, schema_of_run)
        except TwofoldError as error:
            raise TwofoldError(f"{self.path / 'config.json'} cannot be read: {error}") from None

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return self.folder.read("metrics.jsonl")

    @property
    def spectrum(self) -> list[dict[str, Any]]:
        return self.folder.read("spectrum.jsonl")

    @property
    def results(self) -> dict[str, Any] | None:
        """The numbers at the end; None while the run is not finished."""
        path = self.path / "results.json"
        try:
            return json.loads(path.read_text()) if path.exists() else None
        except ValueError:
            raise TwofoldError(f"{path} is damaged: it is not JSON") from None

    @property
    def report(self) -> Path:
        return self.path / "report.html"
