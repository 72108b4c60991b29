"""`twofold resume` and `twofold.resume`: continue a run from its last checkpoint."""

from pathlib import Path
from typing import Any

from torch import nn

from twofold import dist
from twofold.config import Config
from twofold.data.load import read_data
from twofold.data.open import find_again, open_source
from twofold.data.source import ARRAY, DATASET, Source
from twofold.device import own_modes
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.methods import refuse_unregistered
from twofold.models import has_name
from twofold.report.page import write_anew
from twofold.runs import initial_weights, provenance
from twofold.runs.folder import ReadOnlyRunFolder, RunFolder, has_recorded_images
from twofold.runs.run import Run
from twofold.train.trainer import Trainer
from twofold.verbs.training import train_and_report


def resume(
    run: str | Path | Run,
    data: Any = None,
    *,
    encoder: nn.Module | None = None,
    quiet: bool = True,
    display: Display | None = None,
) -> Run:
    """Resume a run from its last checkpoint.

    On a CPU, the result is bit-identical to that of a run that was never stopped. If the run is finished, Twofold does
    not train.

    Parameters
    ----------
    run : str, Path or Run
        The run folder.
    data : optional
        The images, if they moved, or if the run was trained on arrays or a Dataset. By default, Twofold uses the path
        or the name of the data that the run was trained on.
    encoder : nn.Module, optional
        A module of the same class, if the run trains your own module. Its weights do not matter.
    quiet : bool
        Print nothing.
    display : Display, optional
        Where progress is printed; the command line passes one.

    Returns
    -------
    Run
        The finished run.

    Raises
    ------
    TwofoldError
        If the images changed, or if another process trains this run.

    Examples
    --------
    >>> run = twofold.resume("runs/frossl-photos-1")  # doctest: +SKIP
    >>> run = twofold.resume("runs/frossl-photos-1", "/new/path/photos")  # doctest: +SKIP
    """
    with dist.joined(), own_modes():
        display = display or Display(quiet=quiet or not dist.is_first())
        return continue_run(Path(run), Run(run).config, None, display, encoder, data)


def continue_run(
    path: Path, config: Config, source: Source | None, display: Display, encoder: nn.Module | None, data: Any = None
) -> Run:
    """Resume the run in a folder, from an opened source if there is one."""
    folder = RunFolder.open(path) if dist.is_first() else ReadOnlyRunFolder(path)
    if (path / "results.json").exists():
        if not (path / "report.html").exists() and dist.is_first():  # it was stopped between the two files
            write_anew(folder, display)
        display.say(f"{path} is already finished; see its report {path / 'report.html'}")
        return Run(path)
    refuse_unregistered(config.method, path, folder.config_values())
    if source is None and data is None and config.data in (ARRAY, DATASET):
        raise TwofoldError(
            f"{path} was trained on arrays or a Dataset: pass them again with twofold.resume(run, data=...)"
        )
    if encoder is None and not has_name(config.encoder):
        raise TwofoldError(
            f"{path} trains your own {config.encoder}: pass it again with twofold.resume(run, encoder=...)"
        )
    if source is None:
        source = (
            find_again(config)
            if data is None
            else open_source(data, data_dir=config.data_dir, class_list=config.class_list)
        )
    weights = None if config.init is None else initial_weights.load_initial_weights(path)
    with folder.locked():
        module = None if encoder is None else initial_weights.restore_untrained(path, encoder)
        images = read_data(config, source, display, pictures=True)
        trainer = Trainer(config, images, display, module, weights)
        trainer.restore(folder)
        if dist.is_first() and not has_recorded_images(path):  # a kill prevented it
            provenance.record_trained_images(path, source, config, trainer.data)
        display.say(f"resuming {path} at step {trainer.step} of {trainer.total_steps}")
        return train_and_report(trainer, folder, display)
