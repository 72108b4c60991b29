"""What is watched while training: loss terms, the online probe, and the spectrum of the embeddings.

`observe` is part of the step: it only adds into device buffers and never asks for a value. `read` runs outside, at
log points. All state is in buffers, so a checkpoint carries it and a resumed run logs the same numbers.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from twofold.linalg import covariance
from twofold.train.optim import load_optimizer_state, optimizer_state, set_learning_rate
from twofold.types import Batch, Embeddings, LossTerms


class Means:
    """Averages of named scalars since the last log point."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.count = 0

    def observe(self, values: Mapping[str, Tensor]) -> None:
        for name, value in values.items():
            value = value.detach().to(torch.float64 if value.device.type == "cpu" else torch.float32)
            if name in self.sums:
                self.sums[name] += value
            else:
                self.sums[name] = value.clone()
        self.count += 1

    def read(self) -> dict[str, float]:
        """The averages, and a fresh start."""
        values = {name: total.item() / self.count for name, total in self.sums.items()}
        self.sums, self.count = {}, 0
        return values

    def state_dict(self) -> dict[str, Any]:
        return {"sums": self.sums, "count": self.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.sums, self.count = dict(state["sums"]), state["count"]


class OnlineProbe(nn.Module):
    """A linear classifier on the features, trained beside the network by SGD without sending it any gradient."""

    def __init__(self, features: int, classes: int, lr: float, device: torch.device):
        super().__init__()
        self.linear = nn.utils.skip_init(nn.Linear, features, classes, device=device)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        fused = {"fused": True} if device.type == "cuda" else {"foreach": False}
        self.optimizer = torch.optim.SGD(
            self.linear.parameters(), lr=torch.tensor(lr, device=device), momentum=0.9, **fused
        )
        self.top_lr = lr

    def observe(self, features_VNK: Tensor, labels_N: Tensor, lr_factor: Tensor) -> dict[str, Tensor]:
        """One training step; loss and accuracy on this batch, before the step."""
        features = features_VNK.detach().float().flatten(0, 1)
        labels = labels_N.repeat(features_VNK.shape[0])
        with torch.autocast(features.device.type, enabled=False):
            logits = self.linear(features)
            loss = nn.functional.cross_entropy(logits, labels)
        self.optimizer.zero_grad()
        loss.backward()
        set_learning_rate(self.optimizer, self.top_lr * lr_factor)
        self.optimizer.step()
        accuracy = (logits.detach().argmax(dim=1) == labels).float().mean()
        return {"online_loss": loss, "online_train_accuracy": accuracy}


class Spectrum:
    """A running covariance of embeddings, over about the last ten batches; its eigenvalues are taken at log points."""

    MOMENTUM = 0.9

    def __init__(self, dimension: int, device: torch.device):
        self.covariance = torch.zeros(dimension, dimension, device=device)
        self.weight = torch.zeros((), device=device)  # of what is in it: 1 − 0.9^steps

    @torch.no_grad()
    def observe(self, z_VND: Tensor) -> None:
        with torch.autocast(z_VND.device.type, enabled=False):
            batch = covariance(z_VND.detach().float().flatten(0, 1))
        self.covariance.mul_(self.MOMENTUM).add_(batch, alpha=1 - self.MOMENTUM)
        self.weight.mul_(self.MOMENTUM).add_(1 - self.MOMENTUM)

    def read(self) -> Tensor:
        """The covariance [D, D], as float64 on the CPU."""
        return (self.covariance.double() / self.weight.double()).cpu()

    def state_dict(self) -> dict[str, Any]:
        return {"covariance": self.covariance, "weight": self.weight}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.covariance.copy_(state["covariance"])
        self.weight.copy_(state["weight"])


class Observers:
    """All of them, as the trainer sees them."""

    def __init__(self, features: int, dimension: int, classes: int | None, online_lr: float, device: torch.device):
        self.means = Means()
        self.probe = None if classes is None else OnlineProbe(features, classes, online_lr, device)
        self.spectra = {"features": Spectrum(features, device), "embeddings": Spectrum(dimension, device)}

    def observe(self, embeddings: Embeddings, loss: LossTerms, batch: Batch, lr_factor: Tensor) -> None:
        values = {"loss": loss.total} | {f"loss/{name}": value for name, value in loss.terms.items()}
        if self.probe is not None and batch.labels is not None:
            values |= self.probe.observe(embeddings.features, batch.labels, lr_factor)
        self.means.observe(values)
        self.spectra["features"].observe(embeddings.features)
        self.spectra["embeddings"].observe(embeddings.z)

    def state_dict(self) -> dict[str, Any]:
        probe = None
        if self.probe is not None:
            probe = {"linear": self.probe.state_dict(), "optimizer": optimizer_state(self.probe.optimizer)}
        spectra = {name: spectrum.state_dict() for name, spectrum in self.spectra.items()}
        return {"means": self.means.state_dict(), "probe": probe, "spectra": spectra}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.means.load_state_dict(state["means"])
        if self.probe is not None:
            self.probe.load_state_dict(state["probe"]["linear"])
            load_optimizer_state(self.probe.optimizer, state["probe"]["optimizer"])
        for name, spectrum in self.spectra.items():
            spectrum.load_state_dict(state["spectra"][name])


def log_spaced(total: int, count: int) -> list[int]:
    """At most `count` whole numbers from 1 to total, evenly spaced on a log scale, both ends included."""
    return sorted({round(math.exp(math.log(total) * i / max(count - 1, 1))) for i in range(count)} | {total})
