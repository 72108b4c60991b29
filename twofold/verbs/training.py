"""What `pretrain` and `resume` share: train to the last step, evaluate the encoder and write the report."""

import dataclasses
import json
import platform
import time
from datetime import UTC, datetime
from typing import Any

import torch

from twofold import dist
from twofold.checksums import seal
from twofold.config import Config
from twofold.data.source import ARRAY, DATASET
from twofold.data.store import ImageStore
from twofold.device import device_name, peak_memory, process_memory
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.evaluate.gain import LEAST_STEPS
from twofold.evaluate.verdict import with_gain
from twofold.methods.relations import file_coverage
from twofold.report.page import write_anew, write_report
from twofold.report.pictures import record_trainer
from twofold.runs import checkpoint, provenance
from twofold.runs.folder import RunFolder
from twofold.runs.run import Run
from twofold.runs.snapshots import remove_snapshots
from twofold.runs.weights import save_encoder
from twofold.text import plural
from twofold.train.trainer import Trainer
from twofold.verbs.classifiers import save_trained_classifier
from twofold.verbs.evaluation import evaluate, judge_gain, share_of_copies
from twofold.verbs.explain import (
    hint_at_weights,
    labels_in_words,
    repeating_command,
    shape_in_words,
    whose_normalisation,
)
from twofold.verbs.load_lines import lines_to_load
from twofold.verbs.run_adapter import fit_run_adapter
from twofold.verbs.selection import choose
from twofold.version import __version__


def announce(trainer: Trainer, folder: RunFolder, display: Display, remark: str, copies: str) -> None:
    """Print the run's folder, data, method and length, and write the same lines to the log.

    `remark` is a note on the data, and `copies` a sentence on exact duplicates; both may be empty.
    """
    config, data = trainer.config, trainer.data
    where = str(trainer.device) if dist.count() == 1 else f"{dist.count()} × {trainer.device.type}"
    held_out = f", {len(data.test):,} held out" if data.test is not None else ""
    labels = labels_in_words(config, data.classes)
    lines = [
        f"run      {folder.path}",
        f"data     {data.name}: {images_in_words(data.train)}{held_out}, {shape_in_words(config)}, {labels}",
        f"method   {config.method}, encoder {config.encoder}, {where}",
        f"training {plural(config.epochs, 'epoch')} of {plural(trainer.loader.steps_per_epoch, 'step')}, "
        f"batch {config.batch_size}, {config.optimizer}, learning rate {config.scaled_lr:g}",
    ]
    if copies:
        hint = "" if config.data in (ARRAY, DATASET) else f"; list them with: twofold duplicates {folder.path}"
        lines.insert(2, f"copies   {copies}{hint}")
    if remark:
        lines.insert(2, f"note     {remark}")
    if config.init is not None:
        lines.insert(-1, f"weights  {config.init}")
    if trainer.total_steps < LEAST_STEPS and config.recipe != "continued":  # few steps are enough for such a run
        lines.append(
            f"warning  {plural(trainer.total_steps, 'step')} are too few to learn much: train for {LEAST_STEPS} or "
            "more, with a smaller image_size, a smaller encoder or more time"
        )
    if config.recipe == "continued":
        lines += continued_in_words(trainer)
    elif hint := hint_at_weights(config, len(data.train)):
        lines.append(f"hint     {hint}")
    graph = config.parameters.get("graph")
    covered = "" if graph is None else file_coverage(graph, data.train, data.test)
    if covered:
        lines.append(f"graph    {covered}")
    if str(trainer.rows):
        lines.append(f"head     {trainer.rows}")
    for line in lines:
        display.say(line)
        folder.log(line)


def images_in_words(store: ImageStore) -> str:
    objects = "" if store.objects is None else f" of {plural(len(store.objects), 'object')}"
    return f"{len(store):,} images{objects}"


def continued_in_words(trainer: Trainer) -> list[str]:
    """Return lines about the input of a pretrained encoder, and about what is trained."""
    config = trainer.config
    every = list(trainer.method.encoder.parameters())
    trained = sum(weight.numel() for weight in every if weight.requires_grad) / sum(weight.numel() for weight in every)
    rate = config.lr if config.encoder_lr is None else config.encoder_lr
    advice = "" if config.mean is not None else "; if the encoder has its own, set mean and std"
    return [
        f"input    {config.image_size} pixels, mean and standard deviation {whose_normalisation(config)}{advice}",
        f"encoder  {trained:.0%} of its weights are trained, learning rate {rate:g}, layer_decay "
        f"{config.layer_decay:g}, BatchNorm frozen: {config.freeze_batchnorm}; only heads for "
        f"{plural(trainer.head_steps, 'step')}",
    ]


def train_and_report(trainer: Trainer, folder: RunFolder, display: Display) -> Run:
    """Train the remaining steps, evaluate the encoder, and write the results and the report."""
    if trainer.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(trainer.device)  # an earlier run in this process may have had a higher peak
    trainer.train(folder)
    memory = peak_memory(trainer.device)  # measured before the evaluation, which costs the same for all methods
    # The end of training: an earlier encoder may be chosen here (select=best), then an adapter is fitted to it.
    copies = share_of_copies(folder.path, trainer)
    kept = choose(trainer, folder, copies, display)
    if dist.is_first():
        save_encoder(folder.path / "encoder.safetensors", kept.encoder, trainer.description())
    adaptation = fit_run_adapter(trainer, kept.encoder, folder, display)
    measured = evaluate(trainer, kept, adaptation, display)
    gain = judge_gain(trainer, copies, kept, measured)
    results = {
        "verdict": with_gain(trainer.watch.verdict, gain).record(),
        "gain": gain.record(),
        "kept": kept.record(),
        "table": [dataclasses.asdict(each.row) for each in measured],
        "adapter": None if adaptation is None else adaptation.description(),
        "load": lines_to_load(trainer, folder.path),
        "note": trainer.data.remark,
        "skipped_images": len(trainer.data.skipped),
        "train_images": len(trainer.data.train),
        "test_images": len(trainer.data.test) if trainer.data.test is not None else 0,
        "test_images_trained_on": provenance.count_trained_on(folder.path, trainer.data.test)
        if trainer.data.test is not None
        else 0,
        "train_labelled": trainer.data.train.labels_known,
        "test_labelled": trainer.data.test.labels_known if trainer.data.test is not None else 0,
        "seconds": time.monotonic() - trainer.started,
        "memory": memory,
        "process_memory": process_memory(),
        "date": datetime.now(UTC).date().isoformat(),
        "command": repeating_command(trainer.config, folder.path),
        "device": device_name(trainer.device),
        "processes": dist.count(),
        "versions": {"twofold": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "records": folder.record_checksums(),
    }
    if dist.is_first():
        save_trained_classifier(trainer, folder, kept)
    # With this file, the run is finished. If it is stopped from here on, `complete` does what is left.
    folder.write("results.json", json.dumps(seal(results), indent=2) + "\n")
    if dist.is_first():
        remove_unused(folder, trainer.config)
        record_trainer(folder, trainer, kept.encoder, display)
        write_report(folder)
    return Run(folder.path)


def remove_unused(folder: RunFolder, config: Config) -> None:
    """Remove what only an unfinished run needs: the encoders of earlier steps, and older checkpoints."""
    remove_snapshots(folder.path)
    is_asked = config.origin.get("checkpoint.keep") == "user"
    checkpoint.keep_newest(folder.path, config.checkpoint.keep if is_asked else 1)


def complete(folder: RunFolder, config: Config, display: Display, data: Any) -> None:
    """Do what is left of a finished run that was stopped before it wrote its report, which is its last action."""
    remove_unused(folder, config)
    try:
        write_anew(folder, display, data=data)
    except TwofoldError:  # the pictures need these images
        if data is None:
            raise
        write_anew(folder, display)
