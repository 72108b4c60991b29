"""Observers of training: means of the loss terms, the online probe, and the spectrum of the embeddings.

`observe` is part of the step. It only adds to buffers on the device, and the host does not wait for it. `read` runs at
log points. All state is in buffers and so in checkpoints, so that a resumed run logs the same numbers.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from twofold import dist
from twofold.errors import TwofoldError
from twofold.evaluate.metrics import alignment, uniformity, widened
from twofold.linalg import centred, double
from twofold.types import Batch, Embeddings, LossTerms

LABELLED = "labelled"  # the part of a batch that has labels: the weight of averages over labelled images


class Means:
    """Averages of named scalars since the last log point: a vector of sums whose last entry is the number of steps."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.sums = torch.zeros(1)
        self.sound = torch.zeros(1, dtype=torch.int64)  # steps before the first value that was not finite
        self.broken: dict[str, int] = {}  # names of such values at the last `read`, and how many steps ago they began

    @torch.no_grad()
    def observe(self, values: Mapping[str, Tensor]) -> None:
        """Add the values of a step. The names are the same in each step, in any order."""
        if self.names and values.keys() != set(self.names):
            ended, begun = set(self.names) - values.keys(), values.keys() - set(self.names)
            changes = [f"{name} ended" for name in sorted(ended)] + [f"{name} began" for name in sorted(begun)]
            raise TwofoldError(
                f"the terms of the loss changed during the run: {', '.join(changes)}; return the same terms in every "
                "step, with 0 for a term that has no effect"
            )
        ordered = [values[name] for name in self.names or values]
        new = double(torch.stack([*ordered, torch.ones_like(ordered[0])]))
        if self.names:
            self.sums += new
            self.sound += self.sums.isfinite()  # once a sum is not finite, it stays so
        else:
            self.names, self.sums, self.sound = list(values), new, new.isfinite().long()

    def read(self) -> dict[str, float]:
        """Return the averages and reset them."""
        *sums, count = self.sums.tolist()
        *sound, steps = self.sound.tolist()
        self.broken = {name: steps - 1 - first for name, first in zip(self.names, sound, strict=True) if first < steps}
        self.sums.zero_()
        self.sound.zero_()
        return {name: value / count for name, value in zip(self.names, sums, strict=True)}

    def state_dict(self) -> dict[str, Any]:
        return {"names": self.names, "sums": self.sums, "sound": self.sound}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.names, self.sums, self.sound = list(state["names"]), state["sums"].clone(), state["sound"].clone()


class OnlineProbe:
    """A linear classifier on the features, trained with SGD at the same time as the network, without gradient to it."""

    MOMENTUM = 0.9

    def __init__(self, features: int, classes: int, lr: float, device: torch.device):
        # One row for each class, because a product with few columns is slow. The last column is the bias.
        self.weight = torch.zeros(classes, features + 1, device=device)
        self.velocity = torch.zeros_like(self.weight)
        self.top_lr = lr

    @torch.no_grad()
    def logits(self, features: Tensor) -> Tensor:
        return torch.addmm(self.weight[:, -1:], self.weight[:, :-1], features.T).T

    @torch.no_grad()
    def observe(
        self, features_VNK: Tensor, labels_N: Tensor, lr_factor: Tensor, samples: int | None = None
    ) -> dict[str, Tensor]:
        """Train for one step; return loss and accuracy before it, and the part of the batch that has labels.

        `samples` is the number of samples of all processes, if these are the share of one.
        """
        with torch.autocast(features_VNK.device.type, enabled=False):
            features = features_VNK.detach().float().flatten(0, 1)
            labels = labels_N.repeat(len(features_VNK))[None]
            known = labels >= 0  # the probe does not train on images without a label
            count = known.sum() if samples is None else dist.sum_(known.sum(), "observers")
            share = count / (labels.numel() if samples is None else samples * len(features_VNK))
            count, labels = count.clamp(min=1), labels.clamp(min=0)
            logits = self.logits(features).T  # one row for each class here, too
            surprise = logits.log_softmax(dim=0)
            # The gradient of the cross entropy: the probabilities, minus 1 at the label.
            error = surprise.exp().scatter_add_(0, labels, -torch.ones_like(surprise[:1])) * known / count
            loss = -(surprise.gather(0, labels) * known).sum() / count
            accuracy = ((logits.max(dim=0, keepdim=True).indices == labels) & known).sum() / count
            self.velocity.mul_(self.MOMENTUM)
            if samples is None:
                self.velocity[:, :-1].addmm_(error, features)
                self.velocity[:, -1] += error.sum(dim=1)
            else:
                slope = torch.cat([error @ features, error.sum(dim=1, keepdim=True)], dim=1)
                sums = dist.sum_(torch.cat([slope.flatten(), torch.stack([loss, accuracy])]), "observers")
                self.velocity += sums[:-2].view_as(slope)
                loss, accuracy = sums[-2:].unbind()
            self.weight -= self.top_lr * lr_factor * self.velocity
            return {"online_loss": loss, "online_train_accuracy": accuracy, LABELLED: share}

    def state_dict(self) -> dict[str, Any]:
        return {"weight": self.weight.T, "velocity": self.velocity.T}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.weight.T.copy_(state["weight"])
        self.velocity.T.copy_(state["velocity"])


class Spectrum:
    """A running covariance of embeddings, over about the last ten batches; log points record its eigenvalues.

    For two kinds of embeddings y and z it is E[yzᵀ], both centred.
    """

    MOMENTUM = 0.9

    def __init__(self, dimension: int, device: torch.device):
        self.covariance = torch.zeros(dimension, dimension, device=device)
        self.weight = torch.zeros((), device=device)  # sum of the weights in the running mean: 1 − 0.9^steps

    @torch.no_grad()
    def observe(self, z_VND: Tensor, y_VND: Tensor | None = None, samples: int | None = None) -> None:
        """Add a batch. `samples` is the number of samples of all processes, if these are the share of one."""
        with torch.autocast(z_VND.device.type, enabled=False):
            rows = z_VND.shape[:2].numel() if samples is None else samples * len(z_VND)
            x = self.centred(z_VND, rows, samples)
            y = x if y_VND is None else self.centred(y_VND, rows, samples)
            new = (1 - self.MOMENTUM) / max(rows - 1, 1)
            if samples is None:
                self.covariance.addmm_(y.T, x, beta=self.MOMENTUM, alpha=new)
            else:
                self.covariance.mul_(self.MOMENTUM).add_(dist.sum_(y.T @ x, "observers"), alpha=new)
        self.weight.mul_(self.MOMENTUM).add_(1 - self.MOMENTUM)

    @staticmethod
    def centred(z_VND: Tensor, rows: int, samples: int | None) -> Tensor:
        x = z_VND.detach().float().flatten(0, 1)
        return centred(x) if samples is None else x - dist.sum_(x.sum(dim=0), "observers") / rows

    def read(self) -> Tensor:
        """The covariance [D, D] in float64."""
        return widened(self.covariance) / widened(self.weight)

    def state_dict(self) -> dict[str, Any]:
        return {"covariance": self.covariance, "weight": self.weight}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.covariance.copy_(state["covariance"])
        self.weight.copy_(state["weight"])


UNIFORMITY_ROWS = 256  # number of images that `uniformity` compares


@torch.no_grad()
def geometry(embeddings: Embeddings, position_N: Tensor, samples: int | None = None) -> dict[str, Tensor]:
    """Norms of features and embeddings, alignment of the views of an image, and uniformity over the images.

    `samples` is the number of samples of all processes, if these are the share of one, at these positions of the batch.
    """
    features, z = embeddings.features.detach().float(), embeddings.z.detach().float()
    values = {"feature_norm": features.square().sum(-1).mean(), "embedding_norm": z.square().sum(-1).mean()}
    if len(z) > 1:
        values["alignment"] = alignment(z)
    compared = z[0]
    if samples is not None:
        shares = torch.stack(list(values.values())) * (z.shape[1] / samples)
        values = dict(zip(values, dist.sum_(shares, "observers").unbind(), strict=True))
        # The first images of the batch belong to several processes: each fills in its own rows, and the sum has all.
        compared = z.new_zeros(samples, z.shape[2]).index_copy(0, position_N, z[0])[:UNIFORMITY_ROWS]
        compared = dist.sum_(compared.contiguous(), "observers")
    values["uniformity"] = uniformity(compared[:UNIFORMITY_ROWS])
    return values | {name: values[name].sqrt() for name in ("feature_norm", "embedding_norm")}


class Observers:
    """All observers of a run."""

    def __init__(
        self,
        features: int,
        dimension: int,
        classes: int | None,
        online_lr: float,
        device: torch.device,
        *,
        predictor: bool = False,
    ):
        """`predictor`: the method has a trained predictor, whose outputs are observed, too."""
        self.means = Means()
        self.probe = None if classes is None else OnlineProbe(features, classes, online_lr, device)
        self.spectra = {"features": Spectrum(features, device), "embeddings": Spectrum(dimension, device)}
        self.predicted: Spectrum | None = None  # E[pzᵀ] of a predictor's outputs p
        if predictor:
            self.spectra["predictor"], self.predicted = Spectrum(dimension, device), Spectrum(dimension, device)

    def observe(
        self, embeddings: Embeddings, loss: LossTerms, batch: Batch, lr_factor: Tensor, samples: int | None = None
    ) -> None:
        """Observe one step. `samples` is the number of samples of all processes, if these are the share of one."""
        features, z, prediction = embeddings.features, embeddings.z, embeddings.prediction
        embeddings = replace(  # converted to float32 once for all observers
            embeddings,
            features=features.detach().float(),
            z=z.detach().float(),
            prediction=None if prediction is None else prediction.detach().float(),
        )
        values = {"loss": loss.total} | {f"loss/{name}": value for name, value in loss.terms.items()}
        values |= geometry(embeddings, batch.position, samples)
        if self.probe is not None and batch.labels is not None:
            online = self.probe.observe(embeddings.features, batch.labels, lr_factor, samples)
            share = online.pop(LABELLED)
            values |= {name: value * share for name, value in online.items()} | {LABELLED: share}
        self.means.observe(values)
        self.spectra["features"].observe(embeddings.features, samples=samples)
        self.spectra["embeddings"].observe(embeddings.z, samples=samples)
        if self.predicted is not None and embeddings.prediction is not None:
            self.spectra["predictor"].observe(embeddings.prediction, samples=samples)
            self.predicted.observe(embeddings.z, embeddings.prediction, samples)

    def read(self) -> dict[str, float]:
        """Averages since the last log point. Those of the probe are over labelled images, and missing without any."""
        values = self.means.read()
        share = values.pop(LABELLED, None)
        for name in ("online_loss", "online_train_accuracy") if share is not None else ():
            value = values.pop(name)
            if share:
                values[name] = value / share
        return values

    def running(self) -> dict[str, Spectrum]:
        """All running covariances, by their names in a checkpoint."""
        return self.spectra if self.predicted is None else {**self.spectra, "predicted": self.predicted}

    def state_dict(self) -> dict[str, Any]:
        probe = None if self.probe is None else self.probe.state_dict()
        spectra = {name: spectrum.state_dict() for name, spectrum in self.running().items()}
        return {"means": self.means.state_dict(), "probe": probe, "spectra": spectra}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self.probe is None or LABELLED in state["means"]["names"]:  # older checkpoints have averages over all images
            self.means.load_state_dict(state["means"])
        if self.probe is not None:
            self.probe.load_state_dict(state["probe"])
        for name, spectrum in self.running().items():
            spectrum.load_state_dict(state["spectra"][name])
