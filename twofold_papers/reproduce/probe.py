"""Further measurements of a finished run: linear probes, and the alignment of a linear predictor."""

import dataclasses
from pathlib import Path

import torch
from torch import Tensor, nn

from twofold.data.load import read_data
from twofold.data.open import open_source
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.evaluate.probes import labelled_splits, linear_scores
from twofold.runs.folder import RunFolder
from twofold.runs.provenance import open_run_source
from twofold.runs.run import Run
from twofold.train.trainer import Trainer
from twofold_papers.reproduce.table import Probe


def measure_probe(path: Path, probe: Probe, display: Display) -> float | list[float]:
    """The linear accuracy of a probe, or the alignment of each eigenvector, that of the largest eigenvalue first.

    The run is restored from its last checkpoint, with its own normalisation.
    """
    config = dataclasses.replace(Run(path).config, compile=False)
    data = read_data(config, open_run_source(path, config, display.say), display)
    trainer = Trainer(config, data, display)
    trainer.restore(RunFolder.open(path))
    if probe.alignment:
        if not isinstance(trainer.method.predictor, nn.Linear):
            raise TwofoldError(f"{path}: the alignment needs a linear predictor; pass predictor_width=0")
        z = trainer.features(data.train, nn.Sequential(trainer.method.encoder, trainer.method.projector))
        found: list[float] = alignment(z, trainer.method.predictor.weight.detach()).tolist()
        return found
    if probe.data is not None:
        data = read_data(config, open_source(probe.data, data_dir=config.data_dir), display)
    splits = labelled_splits(data)
    assert splits is not None
    network: nn.Module = trainer.method.encoder
    if probe.projected:
        network = nn.Sequential(network, trainer.method.projector)
    train, test = trainer.features(splits.train, network), trainer.features(splits.test, network)
    labels = (splits.train_labels, splits.test_labels)
    return linear_scores(train, labels[0], test, labels[1], classes=len(splits.classes), solver=probe.solver).top1


def alignment(z_ND: Tensor, weight_DD: Tensor) -> Tensor:
    """The cosine of u and W u for each eigenvector u of E[zzᵀ], by descending eigenvalue: float64 [D]."""
    z = z_ND.double().cpu()
    u = torch.linalg.eigh(z.T @ z / len(z)).eigenvectors.flip(1)
    return torch.cosine_similarity(u, weight_DD.double().cpu() @ u, dim=0)
