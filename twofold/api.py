"""What a program calls: configure, pretrain, resume, and the run they speak of."""

import dataclasses
import json
import platform
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import twofold
from twofold import dist
from twofold.config import RUN_KEYS, Config, Head, dump, flat, resolve
from twofold.config import load as load_config
from twofold.data import seen
from twofold.data.datasets import is_array_splits, is_splits
from twofold.data.sources import ARRAY, DATASET, Data, Source, find_again, load_as, open_source
from twofold.errors import TwofoldError
from twofold.evaluate.features import pixels
from twofold.evaluate.probes import Row, compare
from twofold.methods import find, refuse_keys_of_others, refuse_unregistered, schema, schema_of_run
from twofold.methods.relations import file_coverage
from twofold.models import has_name, name_of
from twofold.plan import command, labels_in_words, settle, shape_in_words
from twofold.report.accuracies import plural
from twofold.report.page import write_anew, write_report
from twofold.report.pictures import record_trainer
from twofold.train import initial
from twofold.train.device import device_name, peak_memory, process_memory
from twofold.train.precision import own_modes
from twofold.train.progress import Display
from twofold.train.record import Bystander, Numbered, RunFolder
from twofold.train.trainer import Trainer
from twofold.train.weights import save_encoder

RUNS = Path("runs")


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
    given = dict(overrides or {})
    display = display or Display(quiet=True)
    if minutes is not None and ("epochs" in given or not 0 < minutes < float("inf")):
        raise TwofoldError("give either epochs or minutes of training, and more than 0")
    named = data is None or isinstance(data, (str, Path))
    asked_for = {"data": str(data) if named and data is not None else None, "method": method}
    for name, value in asked_for.items():
        if value is not None and given.setdefault(name, value) != value:
            raise TwofoldError(f"{name} is given twice: {value} and {name}={given[name]}")
    method = given.get("method", RUN_KEYS["method"].default)
    keys = schema(method)
    refuse_keys_of_others(method, given)
    asked = resolve(keys, {"user": given})
    entry = find(method)
    recipe = entry.recipe_for(asked.parameters)
    with dist.one_before_the_others(), display.stage("looking at images", 0) as stage:
        source = open_source(
            asked.data if named else data,
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
        located["init"] = initial.located(asked.init)
    if asked.parameters.get("head", Head()).path is not None:
        located["head.path"] = str(Path(asked.parameters["head"].path).expanduser().resolve())
    # A source may speak of keys that only some methods have, such as a projector's widths; it does not know what suits
    # a method of the user's own.
    kept = {*recipe, *keys.keys() - RUN_KEYS.keys()} if entry.family == "own" else set()
    suited = {name: value for name, value in source.defaults.items() if name in keys and name not in kept}
    sizes = {name: source.chosen[name] for name in ("image_size", "channels")}
    weights = {} if asked.init is None else initial.keys_of(located["init"])
    user = {name: located.pop(name, value) for name, value in given.items()}
    layers = {"method": recipe, "data": suited, "chosen": sizes | located, "init": weights, "user": user}
    return settle(keys, layers, source, minutes=minutes, display=display), source


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
    place = place_of(config, source, out)
    if dist.count() > 1 and dist.restarts() > 0:
        earlier = dist.from_first(lambda: earlier_attempt(config, place))
        if earlier is not None:
            return go_on(Path(earlier), config, source, display, encoder)
    if isinstance(place, Path):
        dist.from_first(lambda: RunFolder.refuse_existing(place))
    data = read_data(config, source, display)
    trainer = Trainer(config, data, display, encoder, weights)
    if trainer.rows is not None:
        trainer.rows.refuse_place()
    path = Path(dist.from_first(lambda: str(RunFolder.create(place, dump(config)).path)))
    folder = RunFolder(path) if dist.is_first() else Bystander(path)
    with folder.held():
        copies = ""
        if dist.is_first():
            copies = seen.remember(folder.path, source, config.test_fraction, data)
            initial.keep(folder.path, weights, None if encoder is None else trainer.untrained)
        if data.skipped:
            folder.write("skipped.txt", "".join(f"{item.path}: {item.reason}\n" for item in data.skipped))
            display.say(f"{len(data.skipped)} images could not be read; {folder.path / 'skipped.txt'} lists them")
        announce(trainer, folder, display, source.remark, copies)
        return complete(trainer, folder, display)


def with_weights(config: Config) -> tuple[Config, dict[str, Tensor] | None]:
    """The weights that `init` names, and the configuration with their fingerprint."""
    if config.init is None:
        return config, None
    assert config.channels is not None
    assert config.image_size is not None
    init, weights = initial.read(config.init, channels=config.channels, image_size=config.image_size)
    return dataclasses.replace(config, init=init), weights


def place_of(config: Config, source: Source, out: str | Path | Numbered | None) -> Path | Numbered:
    if out is None:
        return Numbered(RUNS, f"{config.method}-{source.name}")
    return out if isinstance(out, Numbered) else Path(out)


def earlier_attempt(config: Config, place: Path | Numbered) -> str | None:
    """The folder in which the processes were at work on this very run before torchrun started them again."""
    runs = place.taken() if isinstance(place, Numbered) else [place]
    known = (path for path in runs if (path / "config.json").exists())
    return next((str(path) for path in known if RunFolder(path).config_text() == dump(config)), None)


def resume(
    run: str | Path | Run,
    *,
    data: Any = None,
    encoder: nn.Module | None = None,
    quiet: bool = True,
    display: Display | None = None,
) -> Run:
    """Continue a run from its last checkpoint, as if it had never stopped.

    What a run got from Python is needed again: arrays as `data`, a module as `encoder`, whatever its weights are now.
    """
    with dist.joined(), own_modes():
        display = display or Display(quiet=quiet or not dist.is_first())
        return go_on(Path(run), Run(run).config, None, display, encoder, data)


def go_on(
    path: Path, config: Config, source: Source | None, display: Display, encoder: nn.Module | None, data: Any = None
) -> Run:
    folder = RunFolder.open(path) if dist.is_first() else Bystander(path)
    if (path / "results.json").exists():
        if not (path / "report.html").exists() and dist.is_first():  # it was stopped between the two
            write_anew(folder, display)
        display.say(f"{path} is finished; its report is {path / 'report.html'}")
        return Run(path)
    refuse_unregistered(config.method, path, folder.config_values())
    if source is None and data is None and config.data in (ARRAY, DATASET):
        raise TwofoldError(f"{path} was trained on arrays or a Dataset: twofold.resume(run, data=...) needs them again")
    if encoder is None and not has_name(config.encoder):
        raise TwofoldError(f"{path} trains your own {config.encoder}: twofold.resume(run, encoder=...) needs it again")
    if source is None:
        source = (
            find_again(config)
            if data is None
            else open_source(data, data_dir=config.data_dir, class_list=config.class_list)
        )
    weights = None if config.init is None else initial.kept(path)
    with folder.held():
        module = None if encoder is None else initial.as_begun(path, encoder)
        trainer = Trainer(config, read_data(config, source, display), display, module, weights)
        trainer.restore(folder)
        if dist.is_first() and not seen.is_remembered(path):  # it was killed before it could
            seen.remember(path, source, config.test_fraction, trainer.data)
        display.say(f"resuming {path} at step {trainer.step} of {trainer.total_steps}")
        return complete(trainer, folder, display)


def read_data(config: Config, source: Source, display: Display, *, rest: bool = False) -> Data:
    with dist.one_before_the_others(), display.stage("reading images", len(source)) as stage:
        data = load_as(config, source, stage, rest=rest)
    dist.same_everywhere("images", f"{data.fingerprint}, {len(data.train)} read")
    return data


def announce(trainer: Trainer, folder: RunFolder, display: Display, remark: str, copies: str) -> None:
    """Say what is about to happen, and what was decided for the user."""
    config, data = trainer.config, trainer.data
    where = str(trainer.device) if dist.count() == 1 else f"{dist.count()} × {trainer.device.type}"
    held_out = f", {len(data.test):,} held out" if data.test is not None else ""
    labels = labels_in_words(config, data.classes)
    lines = [
        f"run      {folder.path}",
        f"data     {data.name}: {len(data.train):,} images{held_out}, {shape_in_words(config)}, {labels}",
        f"method   {config.method}, encoder {config.encoder}, {where}",
        f"training {plural(config.epochs, 'epoch')} of {plural(trainer.loader.steps_per_epoch, 'step')}, "
        f"batch {config.batch_size}, {config.optimizer}, learning rate {config.scaled_lr:g}",
    ]
    if copies:
        hint = "" if config.data in (ARRAY, DATASET) else f"; `twofold duplicates {folder.path}` will list them"
        lines.insert(2, f"copies   {copies}{hint}")
    if remark:
        lines.insert(2, f"note     {remark}")
    if config.init is not None:
        lines.insert(-1, f"weights  {config.init}")
    graph = config.parameters.get("graph")
    covered = "" if graph is None else file_coverage(graph, data.train, data.test)
    if covered:
        lines.append(f"graph    {covered}")
    if trainer.rows is not None:
        lines.append(f"head     {trainer.rows}")
    for line in lines:
        display.say(line)
        folder.log(line)


def complete(trainer: Trainer, folder: RunFolder, display: Display) -> Run:
    """Train what is left, then evaluate and report."""
    if trainer.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(trainer.device)  # of an earlier run in this process
    trainer.train(folder)
    memory = peak_memory(trainer.device)  # before evaluation, which is the same for all methods
    if dist.is_first():
        save_encoder(folder.path / "encoder.safetensors", trainer.method.encoder, trainer.description())
    rows = evaluate(trainer, display)
    accuracies = {row.name: row.linear_accuracy for row in rows}
    results = {
        "verdict": trainer.watch.final(accuracies).record(),
        "table": [dataclasses.asdict(row) for row in rows],
        "train_images": len(trainer.data.train),
        "test_images": len(trainer.data.test) if trainer.data.test is not None else 0,
        "test_images_trained_on": seen.trained_on(folder.path, trainer.data.test)
        if trainer.data.test is not None
        else 0,
        "train_labelled": trainer.data.train.labels_known,
        "test_labelled": trainer.data.test.labels_known if trainer.data.test is not None else 0,
        "seconds": time.monotonic() - trainer.started,
        "memory": memory,
        "process_memory": process_memory(),
        "date": datetime.now(UTC).date().isoformat(),
        "command": command(trainer.config, folder.path),
        "device": device_name(trainer.device),
        "processes": dist.count(),
        "versions": {"twofold": twofold.__version__, "torch": torch.__version__, "python": platform.python_version()},
    }
    folder.write("results.json", json.dumps(results, indent=2) + "\n")
    if dist.is_first():
        record_trainer(folder, trainer, display)
        write_report(folder)
    return Run(folder.path)


def evaluate(trainer: Trainer, display: Display) -> list[Row]:
    """Linear probe and kNN of the trained encoder, beside raw pixels and the encoder as it was before training."""
    train, test, classes = trainer.data.train.labelled(), trainer.data.test, trainer.data.classes
    test = None if test is None else test.labelled()
    if test is None or classes is None or train.labels is None or test.labels is None:
        return []
    with display.stage("evaluating", 3) as stage:
        representations = {"trained": (trainer.features(train), trainer.features(test))}
        stage(1)
        representations["untrained"] = (
            trainer.features(train, trainer.untrained),
            trainer.features(test, trainer.untrained),
        )
        if trainer.before is not None:
            representations["before training"] = (
                trainer.features(train, trainer.before),
                trainer.features(test, trainer.before),
            )
        representations["raw pixels"] = (pixels(train), pixels(test))
        stage(2)
        tasks = [
            partial(compare, {name: pair}, train.labels, test.labels, classes=len(classes))
            for name, pair in representations.items()
        ]
        rows = [row for rows in dist.spread(tasks) for row in rows]
        stage(3)
    return rows
