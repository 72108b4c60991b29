"""`Run`, the Python object of a run folder. `twofold.pretrain` returns it, and the other verbs accept it.

In place of a run, most verbs also accept a folder that holds an encoder alone, as `twofold adapt --out FOLDER` writes
it. They read its configuration with `config_of`.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from torch import nn

from twofold.config import Config
from twofold.config import load as load_config
from twofold.data.decode_options import DecodeOptions
from twofold.errors import TwofoldError
from twofold.files import refuse_unwritable
from twofold.methods import schema_of_run
from twofold.runs.folder import RunFolder
from twofold.runs.weights import ENCODER_FILE, read_encoder, save_encoder
from twofold.schema import fields, number, text


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
        return RunFolder(self.path).results()

    @property
    def report(self) -> Path:
        """The path of the report, `report.html`."""
        return self.path / "report.html"


def is_encoder_folder(path: Path) -> bool:
    """Return whether a folder holds an encoder that no run in this folder trained."""
    return (path / ENCODER_FILE).exists() and not (path / "config.json").exists()


def config_of(run: str | Path | Run) -> Config:
    """Return the configuration of a run. For a folder with an encoder alone, return that of its images."""
    path = Path(run)
    if not is_encoder_folder(path):
        return Run(path).config
    description = read_encoder(path)[1]
    if problem := fields({"data": text, "data_dir": text, "test_fraction": number(0, 1)})(description):
        raise TwofoldError(
            f"{path / ENCODER_FILE} does not say which images it is for: its description{problem}; pass the folder of "
            "the run that trained it, or one that `twofold adapt --out` wrote"
        )
    return Config(
        data=description["data"],
        data_dir=description["data_dir"],
        test_fraction=description["test_fraction"],
        image_size=description["image_size"],
        channels=description["channels"],
        encoder=description["encoder"],
        stem=description["stem"],
        precision="float32",
        pixel_range=cast(Any, DecodeOptions.of(description).pixel_range),  # as in the run: not `auto`
    )


def write_encoder_folder(out: Path, network: nn.Module, description: Mapping[str, Any]) -> Path:
    """Write an encoder into a new folder, and return the path of its file."""
    RunFolder.refuse_existing(out)
    out.mkdir(parents=True, exist_ok=True)
    save_encoder(out / ENCODER_FILE, network, dict(description))
    return out / ENCODER_FILE


def refuse_unusable_folder(out: Path) -> None:
    """Raise an error before the work if `write_encoder_folder` would fail."""
    RunFolder.refuse_existing(out)
    if out.parent.is_dir():
        refuse_unwritable(out / ENCODER_FILE if out.is_dir() else out)
    elif out.parent.exists():
        raise TwofoldError(f"--out {out}: {out.parent} is a file; choose another --out")
