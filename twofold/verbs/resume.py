"""`twofold resume` and `twofold.resume`: continue a run from its last checkpoint, also with more epochs."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from twofold import dist
from twofold.config import RUN_KEYS, Config, dump
from twofold.data.load import read_data
from twofold.data.open import find_again, open_as
from twofold.data.own_transform import Transform
from twofold.data.source import ARRAY, DATASET, Source
from twofold.device import own_modes
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.evaluate.graph_features import with_graph_features
from twofold.keys import checked
from twofold.methods import refuse_unregistered
from twofold.methods.own_function import pass_function
from twofold.models import has_name
from twofold.runs import initial_weights, provenance
from twofold.runs.folder import ReadOnlyRunFolder, RunFolder
from twofold.runs.images_record import has_recorded_images
from twofold.runs.run import Run
from twofold.text import plural
from twofold.train.optim import learning_rates
from twofold.train.setup import weights_from_images
from twofold.train.trainer import Trainer
from twofold.verbs.training import complete, train_and_report

EXTENDED = {"epochs": "user"}  # the origin of the number of epochs of an extended run


def resume(
    run: str | Path | Run,
    data: Any = None,
    *,
    epochs: int | None = None,
    encoder: nn.Module | None = None,
    transform: Transform | None = None,
    quiet: bool = True,
    display: Display | None = None,
) -> Run:
    """Resume a run from its last checkpoint, or extend it.

    On a CPU, the result is bit-identical to that of a run that was never stopped. If the run is finished, Twofold does
    not train, unless you pass a larger number of epochs.

    Parameters
    ----------
    run : str, Path or Run
        The run folder.
    data : optional
        The images, if they moved, or if the run was trained on arrays or a Dataset. By default, Twofold uses the path
        or the name of the data that the run was trained on.
    epochs : int, optional
        The new number of epochs in all, to extend the run. From its last checkpoint on, all schedules are those of a
        run with this number of epochs. So with `schedule=cosine`, the learning rate rises again at this point.
    encoder : nn.Module, optional
        A module of the same class, if the run trains your own module. Its weights do not matter.
    transform : callable, optional
        The function `augment.transform` of the run, if its file or module has moved, or if it had no name.
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
    >>> run = twofold.resume("runs/frossl-photos-1", epochs=200)  # doctest: +SKIP
    """
    with dist.joined(), own_modes():
        display = display or Display(quiet=quiet or not dist.is_first())
        if transform is not None:
            name = Run(run).config.augment.transform
            if name is None:
                raise TwofoldError(f"{run} has no augment.transform: leave transform out")
            pass_function(transform, name)
        return continue_run(Path(run), Run(run).config, None, display, encoder, data, epochs)


def continue_run(
    path: Path,
    config: Config,
    source: Source | None,
    display: Display,
    encoder: nn.Module | None,
    data: Any = None,
    epochs: int | None = None,
) -> Run:
    """Resume the run in a folder, from an opened source if there is one."""
    folder = RunFolder.open(path) if dist.is_first() else ReadOnlyRunFolder(path)
    longer = config if epochs is None else with_epochs(path, config, epochs)
    if (path / "results.json").exists() and longer == config:
        if not (path / "report.html").exists() and dist.is_first():
            complete(folder, config, display, data)
        display.say(f"{path} is already finished; see its report {path / 'report.html'}")
        return Run(path)
    refuse_unregistered(config.method, path, folder.config_record()["values"])
    if source is None and data is None and config.data in (ARRAY, DATASET):
        raise TwofoldError(
            f"{path} was trained on arrays or a Dataset: pass them again with twofold.resume(run, data=...)"
        )
    if encoder is None and not has_name(config.encoder):
        raise TwofoldError(
            f"{path} trains your own {config.encoder}: pass it again with twofold.resume(run, encoder=...)"
        )
    if source is None:
        source = find_again(config) if data is None else open_as(config, data)
    weights = None if config.init is None else initial_weights.load_initial_weights(path)
    with ExitStack() as stack:
        stack.enter_context(folder.locked())
        module = None if encoder is None else initial_weights.restore_untrained(path, encoder)
        images = with_graph_features(longer, source, read_data(longer, source, display, pictures=True), display)
        made = initial_weights.load_made_weights(path) if encoder is None else None
        if made is None:  # the run was stopped before it wrote them
            made = weights_from_images(longer, images.train)
        trainer = Trainer(longer, images, display, module, weights, made)
        trainer.restore(folder)
        if dist.is_first() and not has_recorded_images(path):  # a kill prevented it
            provenance.record_trained_images(path, source, config, trainer.data)
        if longer != config:
            record_extension(folder, config, trainer, display)
            stack.enter_context(folder.locked())  # the lock is on config.json, which is a new file now
        display.say(f"resuming {path} at step {trainer.step} of {trainer.total_steps}")
        return train_and_report(trainer, folder, display)


def with_epochs(path: Path, config: Config, epochs: int) -> Config:
    """Return the configuration with a larger number of epochs."""
    epochs = checked("epochs", epochs, RUN_KEYS["epochs"].hint)
    if epochs < config.epochs:
        raise TwofoldError(
            f"epochs={epochs} is less than the {plural(config.epochs, 'epoch')} of {path}: give the number of all "
            f"epochs, such as {2 * config.epochs}"
        )
    return config if epochs == config.epochs else replace(config, epochs=epochs, origin={**config.origin, **EXTENDED})


def record_extension(folder: RunFolder, before: Config, trainer: Trainer, display: Display) -> None:
    """Make the run an unfinished one with more epochs, and say which schedule it follows."""
    folder.write("config.json", dump(trainer.config))
    if dist.is_first():
        (folder.path / "results.json").unlink(missing_ok=True)
    last = learning_rates(before, trainer.loader.steps_per_epoch)[trainer.step - 1 : trainer.step].tolist()
    rate = f" It was {last[0]:.3g} in the last step." if last else ""
    line = (
        f"extended from {before.epochs} to {plural(trainer.config.epochs, 'epoch')}: from step {trainer.step} on, all "
        f"schedules are those of a run with {plural(trainer.config.epochs, 'epoch')}. The learning rate continues at "
        f"{float(trainer.rates[trainer.step]):.3g} (schedule={trainer.config.schedule}).{rate}"
    )
    display.say(line)
    folder.log(line)
