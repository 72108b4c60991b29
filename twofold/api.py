"""What a program calls: configure, pretrain, resume, embed, and the run they speak of."""

import dataclasses
import json
import platform
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import torch
from torch import nn

import twofold
from twofold import dist
from twofold.config import RUN_KEYS, Config, dump, flat, resolve
from twofold.config import load as load_config
from twofold.data.loader import suggested_batch_size
from twofold.data.sources import ARRAY, Data, Source, load, network_for, open_source
from twofold.errors import TwofoldError
from twofold.evaluate.features import extract, pixels
from twofold.evaluate.probes import Row, compare
from twofold.keys import shown
from twofold.methods import find, schema
from twofold.models import has_name
from twofold.report.page import write_report
from twofold.train.device import choose_device
from twofold.train.precision import autocast_of
from twofold.train.progress import Display
from twofold.train.record import Bystander, RunFolder, last_taken, next_free
from twofold.train.trainer import Trainer
from twofold.train.weights import load_encoder, save_encoder

RUNS = Path("runs")


@dataclasses.dataclass(frozen=True)
class Run:
    """A run folder, read."""

    path: Path

    @property
    def folder(self) -> RunFolder:
        return RunFolder.open(self.path)

    @property
    def config(self) -> Config:
        return load_config(self.folder.config_text(), schema)

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
        return json.loads(path.read_text()) if path.exists() else None

    @property
    def report(self) -> Path:
        return self.path / "report.html"


def configure(
    data: Any = None,
    method: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    display: Display | None = None,
) -> tuple[Config, Source]:
    """The configuration of a run, each value from the highest layer that sets it, and the opened data source."""
    given = dict(overrides or {})
    named = data is None or isinstance(data, (str, Path))
    asked_for = {"data": str(data) if named and data is not None else None, "method": method}
    for name, value in asked_for.items():
        if value is not None and given.setdefault(name, value) != value:
            raise TwofoldError(f"{name} is given twice: {value} and {name}={given[name]}")
    method = given.get("method", RUN_KEYS["method"].default)
    keys = schema(method)
    asked = resolve(keys, {"user": given})
    recipe = find(method).recipe_for(asked.parameters)
    with dist.one_before_the_others(), (display or Display(quiet=True)).stage("looking at images", 0) as stage:
        source = open_source(
            asked.data if named else data, data_dir=asked.data_dir, download=asked.download, progress=stage
        )
    # Absolute, so that the run can be resumed from another folder.
    located = {"data": source.location, "data_dir": str(Path(asked.data_dir).resolve())}
    if Path(given.get("graph.source", "")).is_file():
        located["graph.source"] = str(Path(given["graph.source"]).resolve())
    # A source may speak of keys that only some methods have, such as a projector's widths.
    suited = {name: value for name, value in source.defaults.items() if name in keys}
    sizes = {name: source.chosen[name] for name in ("image_size", "channels")}
    layers = {"method": recipe, "data": suited, "chosen": sizes, "user": given | located}
    layers["chosen"] = sizes | follow(resolve(keys, layers), source)
    return resolve(keys, layers), source


def follow(config: Config, source: Source) -> dict[str, Any]:
    """Values that follow from image size, number of images and epochs, where nobody asked for others."""
    assert config.image_size is not None
    chosen = network_for(config.image_size)
    if config.warmup_epochs > config.epochs / 10:
        chosen["warmup_epochs"] = config.epochs / 10
    images = source.training_images(config.test_fraction)
    if images < 2 * config.batch_size:
        chosen["batch_size"] = suggested_batch_size(images)
    return chosen


def pretrain(
    config: Config | Mapping[str, Any] | Any = None,
    *,
    method: str | None = None,
    out: str | Path | None = None,
    encoder: str | nn.Module | None = None,
    quiet: bool = True,
    **overrides: Any,
) -> Run:
    """Train an encoder without labels.

    `config` is the data (a name, a folder, an array of images, a pair (images, labels)), or a mapping of keys, or a
    Config, which is complete and used as it is. Further keys are keyword arguments, with two underscores for a dot:
    `augment__flip=0`. `encoder` is a name, or any module that maps images [N, C, H, W] to features [N, K].
    """
    keys = {name.replace("__", "."): value for name, value in overrides.items()}
    if isinstance(config, Config):
        keys = settled(config) | keys
    elif isinstance(config, Mapping):
        keys = dict(config) | keys
    elif config is not None:
        keys["data"] = config
    data = keys.pop("data", None)
    if encoder is not None:
        keys["encoder"] = encoder if isinstance(encoder, str) else type(encoder).__name__
    module = encoder if isinstance(encoder, nn.Module) else None
    with dist.joined():
        display = Display(quiet=quiet or not dist.is_first())
        resolved, source = configure(data, method, keys, display)
        return start(resolved, source, out=out, display=display, encoder=module)


def settled(config: Config) -> dict[str, Any]:
    """All values of a configuration, less those of the run that are still open: image size and channels."""
    return {name: value for name, value in flat(config).items() if value is not None or name not in RUN_KEYS}


def start(
    config: Config, source: Source, *, out: str | Path | None, display: Display, encoder: nn.Module | None = None
) -> Run:
    """Read the data and build everything before the first file is written: a refusal leaves nothing behind."""
    if dist.count() > 1 and dist.restarts() > 0:
        earlier = dist.from_first(lambda: earlier_attempt(config, source, out))
        if earlier is not None:
            return go_on(Path(earlier), config, source, display, encoder)
    path = Path(dist.from_first(lambda: new_place(config, source, out)))
    data = read_data(config, source, display)
    trainer = Trainer(config, data, display, encoder)
    folder = RunFolder.create(path, dump(config)) if dist.is_first() else Bystander(path)
    if data.skipped:
        folder.write("skipped.txt", "".join(f"{item.path}: {item.reason}\n" for item in data.skipped))
        display.say(f"{len(data.skipped)} images could not be read; they are listed in {folder.path / 'skipped.txt'}")
    announce(trainer, folder, display)
    return complete(trainer, folder, display)


def new_place(config: Config, source: Source, out: str | Path | None) -> str:
    path = Path(out) if out is not None else next_free(RUNS, f"{config.method}-{source.name}")
    RunFolder.refuse_existing(path)
    return str(path)


def earlier_attempt(config: Config, source: Source, out: str | Path | None) -> str | None:
    """The folder in which the processes were at work on this very run before torchrun started them again."""
    path = Path(out) if out is not None else last_taken(RUNS, f"{config.method}-{source.name}")
    if path is None or not (path / "config.json").exists() or RunFolder(path).config_text() != dump(config):
        return None
    return str(path)


def resume(
    run: str | Path | Run,
    *,
    data: Any = None,
    encoder: nn.Module | None = None,
    quiet: bool = True,
    display: Display | None = None,
) -> Run:
    """Continue a run from its last checkpoint, as if it had never stopped.

    What a run got from Python is needed again: arrays as `data`, a module as `encoder`, with its initial weights.
    """
    with dist.joined():
        path = run.path if isinstance(run, Run) else Path(run)
        display = display or Display(quiet=quiet or not dist.is_first())
        config = load_config(RunFolder.open(path).config_text(), schema)
        return go_on(path, config, None, display, encoder, data)


def go_on(
    path: Path, config: Config, source: Source | None, display: Display, encoder: nn.Module | None, data: Any = None
) -> Run:
    folder = RunFolder.open(path) if dist.is_first() else Bystander(path)
    if (path / "results.json").exists():
        if not (path / "report.html").exists() and dist.is_first():  # it was stopped between the two
            write_report(folder)
        display.say(f"{path} is finished; its report is {path / 'report.html'}")
        return Run(path)
    if source is None and data is None and config.data == ARRAY:
        raise TwofoldError(f"{path} was trained on arrays: twofold.resume(run, data=...) needs them again")
    if encoder is None and not has_name(config.encoder):
        raise TwofoldError(f"{path} trains your own {config.encoder}: twofold.resume(run, encoder=...) needs it again")
    if source is None:
        source = open_source(config.data if data is None else data, data_dir=config.data_dir)
    trainer = Trainer(config, read_data(config, source, display), display, encoder)
    trainer.restore(folder)
    display.say(f"resuming {path} at step {trainer.step} of {trainer.total_steps}")
    return complete(trainer, folder, display)


def read_data(config: Config, source: Source, display: Display) -> Data:
    assert config.image_size is not None
    assert config.channels is not None
    with dist.one_before_the_others(), display.stage("reading images", len(source)) as stage:
        data = load(
            source,
            image_size=config.image_size,
            channels=config.channels,
            test_fraction=config.test_fraction,
            progress=stage,
        )
    dist.same_everywhere("images", f"{data.fingerprint}, {len(data.train)} read")
    return data


def announce(trainer: Trainer, folder: RunFolder, display: Display) -> None:
    """Say what is about to happen, and what was decided for the user."""
    config, data = trainer.config, trainer.data
    where = str(trainer.device) if dist.count() == 1 else f"{dist.count()} × {trainer.device.type}"
    held_out = f", {len(data.test):,} held out" if data.test is not None else ""
    labels = f"{len(data.classes)} classes (for evaluation only)" if data.classes else "no labels"
    lines = [
        f"run      {folder.path}",
        f"data     {data.name}: {len(data.train):,} images{held_out}, {config.image_size} pixels, {labels}",
        f"method   {config.method}, encoder {config.encoder}, {where}",
        f"training {config.epochs} epochs of {trainer.loader.steps_per_epoch} steps, batch {config.batch_size}, "
        f"{config.optimizer}, learning rate {config.scaled_lr:g}",
    ]
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
    results = {
        "table": [dataclasses.asdict(row) for row in evaluate(trainer, display)],
        "train_images": len(trainer.data.train),
        "test_images": len(trainer.data.test) if trainer.data.test is not None else 0,
        "seconds": time.monotonic() - trainer.started,
        "memory": memory,
        "date": datetime.now(UTC).date().isoformat(),
        "command": command(trainer.config, folder.path),
        "device": device_name(trainer.device),
        "processes": dist.count(),
        "versions": {"twofold": twofold.__version__, "torch": torch.__version__, "python": platform.python_version()},
    }
    folder.write("results.json", json.dumps(results, indent=2) + "\n")
    if dist.is_first():
        write_report(folder)
    return Run(folder.path)


def evaluate(trainer: Trainer, display: Display) -> list[Row]:
    """Linear probe and kNN of the trained encoder, beside raw pixels and the encoder as it was before training."""
    train, test, classes = trainer.data.train, trainer.data.test, trainer.data.classes
    if test is None or classes is None or train.labels is None or test.labels is None:
        return []
    with display.stage("evaluating", 3) as stage:
        representations = {"trained": (trainer.features(train), trainer.features(test))}
        stage(1)
        representations["untrained"] = (
            trainer.features(train, trainer.untrained),
            trainer.features(test, trainer.untrained),
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


def command(config: Config, path: Path) -> str:
    """The command that repeats this run."""
    values = flat(config)
    keys = [
        quote(f"{name}={shown(values[name])}")
        for name, layer in config.origin.items()
        if layer == "user" and name not in ("data", "method")
    ]
    return " ".join(
        ["twofold pretrain", quote(config.data), "--method", config.method, "--out", quote(str(path)), *keys]
    )


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type}, {torch.get_num_threads()} threads"


def peak_memory(device: torch.device) -> float | None:
    """The most that torch had allocated there at one time, in MiB; None where it does not count."""
    return torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None


def embed(
    run: str | Path | Run,
    data: Any,
    out: str | Path,
    *,
    encoder: nn.Module | None = None,
    quiet: bool = True,
    display: Display | None = None,
) -> Path:
    """Features of every image of `data` under a run's encoder, with index, split, labels and file names, as .npz.

    Labels are −1, and names empty, in a split that has none; without any there is no such column.
    """
    path, out = run.path if isinstance(run, Run) else Path(run), Path(out)
    display = display or Display(quiet=quiet)
    if out.suffix != ".npz" or not out.resolve().parent.is_dir():
        raise TwofoldError(f"--out {out}: embeddings are written as .npz, into a folder that exists")
    config = Run(path).config
    network = load_encoder(path, encoder=encoder)
    source = open_source(str(data) if isinstance(data, Path) else data, data_dir=config.data_dir)
    device = choose_device("auto")
    everything = read_data(dataclasses.replace(config, test_fraction=0.0), source, display)
    stores = {name: store for name, store in (("train", everything.train), ("test", everything.test)) if store}
    columns: dict[str, list[np.ndarray]] = {"features": [], "index": [], "split": [], "labels": [], "files": []}
    for name, store in stores.items():
        with display.stage(f"embedding {name}", len(store)) as stage:
            features = extract(
                network.to(device),
                store.place(device),
                network.preprocess,  # type: ignore[arg-type]
                device=device,
                autocast=autocast_of(config, device),
                progress=stage,
            )
        columns["features"].append(features.cpu().numpy())
        columns["index"].append(store.index.cpu().numpy())
        columns["split"].append(np.full(len(store), name))
        columns["labels"].append(np.full(len(store), -1) if store.labels is None else store.labels.cpu().numpy())
        columns["files"].append(np.full(len(store), "") if store.files is None else np.array(store.files))
    empty = {"labels": all(store.labels is None for store in stores.values()),
             "files": all(store.files is None for store in stores.values())}  # fmt: skip
    aside = out.with_name(f".{out.stem}.part.npz")
    np.savez(aside, **{name: np.concatenate(parts) for name, parts in columns.items() if not empty.get(name)})  # type: ignore[arg-type]
    aside.replace(out)
    return out
