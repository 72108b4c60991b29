"""Further linear probes of a finished run: on other images, or on the output of the projector."""

import dataclasses
from pathlib import Path

from torch import nn

from twofold.data.load import read_data
from twofold.data.open import open_source
from twofold.display import Display
from twofold.evaluate.probes import labelled_splits, linear_accuracy
from twofold.runs.folder import RunFolder
from twofold.runs.provenance import open_run_source
from twofold.runs.run import Run
from twofold.train.trainer import Trainer
from twofold_papers.reproduce.table import Probe


def measure_probe(path: Path, probe: Probe, display: Display) -> float:
    """The linear accuracy of a probe. The run is restored from its last checkpoint, with its own normalisation."""
    config = dataclasses.replace(Run(path).config, compile=False)
    data = read_data(config, open_run_source(path, config, display.say), display)
    trainer = Trainer(config, data, display)
    trainer.restore(RunFolder.open(path))
    if probe.data is not None:
        data = read_data(config, open_source(probe.data, data_dir=config.data_dir), display)
    splits = labelled_splits(data)
    assert splits is not None
    network: nn.Module = trainer.method.encoder
    if probe.projected:
        network = nn.Sequential(network, trainer.method.projector)
    train, test = trainer.features(splits.train, network), trainer.features(splits.test, network)
    return linear_accuracy(train, splits.train_labels, test, splits.test_labels, classes=len(splits.classes))
