"""What a program calls: configure, pretrain, resume, and the run they speak of."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from twofold import dist
from twofold.config import RUN_KEYS, Config, Head, dump, flat
from twofold.config.image_size import default_image_size
from twofold.data.load import read_data
from twofold.data.open import open_source
from twofold.data.readers.arrays import is_array_splits
from twofold.data.readers.datasets import is_splits
from twofold.data.source import Source
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.models import name_of
from twofold.precision import own_modes
from twofold.runs import initial_weights, provenance
from twofold.runs.folder import Numbered, ReadOnlyRunFolder, RunFolder
from twofold.runs.run import Run
from twofold.train.trainer import Trainer
from twofold.verbs.choose import resolve_config
from twofold.verbs.resume import continue_run
from twofold.verbs.settings import check_settings, is_named
from twofold.verbs.training import announce, train_and_report

RUNS = Path("runs")


def configure(
    data: Any = None,
    method: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    display: Display | None = None,
    minutes: float | None = None,
) -> tuple[Config, Source]:
    """The configuration of a run, each value from the highest layer that sets it, and the opened data source.

    `minutes` of training take the place of `epochs`: how many that is, is measured here, and then fixed.
    """
    display = display or Display(quiet=True)
    settings = check_settings(data, method, overrides or {}, minutes)
    given, keys, asked = settings.given, settings.keys, settings.config
    recipe = settings.method.recipe_for(asked.parameters)
    with dist.one_before_the_others(), display.stage("looking at images", 0) as stage:
        source = open_source(
            asked.data if is_named(data) else data,
            data_dir=asked.data_dir,
            download=asked.download,
            class_list=asked.class_list,
            progress=stage,
        )
    # Absolute, so that the run can be resumed from another folder.
    located = {"data": source.location, "data_dir": str(Path(asked.data_dir).resolve())}
    for name in ("graph.source", "class_list"):
        if given.get(name) and Path(given[name]).is_file():
            located[name] = str(Path(given[name]).resolve())
    if asked.init is not None:
        located["init"] = initial_weights.located(asked.init)
    if asked.parameters.get("head", Head()).path is not None:
        located["head.path"] = str(Path(asked.parameters["head"].path).expanduser().resolve())
    # A source may speak of keys that only some methods have, such as a projector's widths; it does not know what suits
    # a method of the user's own.
    kept = {*recipe, *keys.keys() - RUN_KEYS.keys()} if settings.method.family == "own" else set()
    suited = {name: value for name, value in source.defaults.items() if name in keys and name not in kept}
    sizes = {"image_size": default_image_size(source.train.side), "channels": source.train.channels}
    weights = {} if asked.init is None else initial_weights.keys_of(located["init"])
    user = {name: located.pop(name, value) for name, value in given.items()}
    layers = {"method": recipe, "data": suited, "chosen": sizes | located, "init": weights, "user": user}
    return resolve_config(keys, layers, source, minutes=minutes, display=display), source


def pretrain(
    config: Config | Mapping[str, Any] | Any = None,
    *,
    method: str | None = None,
    out: str | Path | Numbered | None = None,
    encoder: str | nn.Module | None = None,
    minutes: float | None = None,
    quiet: bool = True,
    **overrides: Any,
) -> Run:
    """Train an encoder without labels.

    `config` is the data (a name, a path, an array of images, a pair (images, labels), a Dataset of PyTorch or Hugging
    Face, or a pair or dict of these: train and test), or a mapping of keys, or a Config, which is complete and used as
    it is. Further keys are keyword arguments, with two underscores for a dot: `augment__flip=0`. `encoder` is a
    name, or any module that maps images [N, C, H, W] to features [N, K]. `minutes` in place of epochs chooses as many
    as fit, by the pace of a few steps.
    """
    keys = {name.replace("__", "."): value for name, value in overrides.items()}
    if isinstance(config, Config):
        keys = settled(config) | keys
    elif isinstance(config, Mapping) and not is_splits(config) and not is_array_splits(config):
        keys = dict(config) | keys
    elif config is not None:
        if "data" in keys:
            raise TwofoldError("data are given twice: as the first argument and as data=")
        keys["data"] = config
    data = keys.pop("data", None)
    if encoder is not None:
        keys["encoder"] = name_of(encoder)
    module = encoder if isinstance(encoder, nn.Module) else None
    with dist.joined(), own_modes():
        display = Display(quiet=quiet or not dist.is_first())
        resolved, source = configure(data, method, keys, display, minutes)
        return start(resolved, source, out=out, display=display, encoder=module)


def settled(config: Config) -> dict[str, Any]:
    """All values of a configuration, less those of the run that are still open: image size and channels."""
    return {name: value for name, value in flat(config).items() if value is not None or name not in RUN_KEYS}


def start(
    config: Config,
    source: Source,
    *,
    out: str | Path | Numbered | None,
    display: Display,
    encoder: nn.Module | None = None,
) -> Run:
    """Read the data and build everything before the first file is written: a refusal leaves nothing behind."""
    config, weights = with_weights(config)
    place = run_place(config, source, out)
    if dist.count() > 1 and dist.restarts() > 0:
        earlier = dist.from_first(lambda: earlier_attempt(config, place))
        if earlier is not None:
            return continue_run(Path(earlier), config, source, display, encoder)
    if isinstance(place, Path):
        dist.from_first(lambda: RunFolder.refuse_existing(place))
    data = read_data(config, source, display)
    trainer = Trainer(config, data, display, encoder, weights)
    trainer.rows.refuse_place()
    path = Path(dist.from_first(lambda: str(RunFolder.create(place, dump(config)).path)))
    folder = RunFolder(path) if dist.is_first() else ReadOnlyRunFolder(path)
    with folder.held():
        copies = ""
        if dist.is_first():
            copies = provenance.remember(folder.path, source, config.test_fraction, data)
            initial_weights.keep(folder.path, weights, None if encoder is None else trainer.untrained)
        if data.skipped:
            folder.write("skipped.txt", "".join(f"{item.path}: {item.reason}\n" for item in data.skipped))
            display.say(f"{len(data.skipped)} images could not be read; {folder.path / 'skipped.txt'} lists them")
        announce(trainer, folder, display, source.remark, copies)
        return train_and_report(trainer, folder, display)


def with_weights(config: Config) -> tuple[Config, dict[str, Tensor] | None]:
    """The weights that `init` names, and the configuration with their fingerprint."""
    if config.init is None:
        return config, None
    assert config.channels is not None
    assert config.image_size is not None
    init, weights = initial_weights.read_initial(config.init, channels=config.channels, image_size=config.image_size)
    return dataclasses.replace(config, init=init), weights


def run_place(config: Config, source: Source, out: str | Path | Numbered | None) -> Path | Numbered:
    if out is None:
        return Numbered(RUNS, f"{config.method}-{source.name}")
    return out if isinstance(out, Numbered) else Path(out)


def earlier_attempt(config: Config, place: Path | Numbered) -> str | None:
    """The folder in which the processes were at work on this very run before torchrun started them again."""
    runs = place.taken() if isinstance(place, Numbered) else [place]
    known = (path for path in runs if (path / "config.json").exists())
    return next((str(path) for path in known if RunFolder(path).config_text() == dump(config)), None)
