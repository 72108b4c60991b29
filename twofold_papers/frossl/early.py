"""Eigenvalues of embeddings early in training, in two versions: a small MLP on digits, trained with four losses."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from twofold import objectives
from twofold.data.readers.digits import read_digits
from twofold.linalg import centred

IMAGES, BATCH, WIDTH, DIM = 1024, 256, 256, 64
STEPS, EVERY, LR, MOMENTUM = 240, 4, 0.02, 0.9
LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "FroSSL": lambda z: objectives.frossl(z).total,
    "VICReg": lambda z: objectives.vicreg(z).total,
    "Barlow Twins": lambda z: objectives.barlow_twins(z).total,
    "SimCLR": lambda z: objectives.info_nce(z, 0.2).total,
}


@dataclass(frozen=True)
class Spectra:
    """Eigenvalues [T, D] in descending order; each row is divided by its sum."""

    normalised: Tensor  # of Z₁ᵀZ₁, where each column of the first view has mean 0 and variance 1, as in the paper
    plain: Tensor  # of the covariance of both views, without normalisation, as in our table `frossl-spectrum`


def two_views(images: Tensor) -> Tensor:
    """Views [2, N, 64]: each image is shifted by at most one pixel, and noise is added."""
    shifts = torch.randint(-1, 2, (2, len(images), 2))
    views = [
        torch.stack([image.roll(tuple(shift), (0, 1)) for image, shift in zip(images, view, strict=True)])
        for view in shifts.tolist()
    ]
    pixels = torch.stack(views).flatten(2)
    return pixels + 0.1 * torch.randn_like(pixels)


def eigenvalues(rows: Tensor) -> Tensor:
    found = torch.linalg.eigvalsh(rows.T @ rows).flip(0).clamp_min(0)
    return found / found.sum()


def spectra(loss: Callable[[Tensor], Tensor], seed: int = 0) -> Spectra:
    """Train with SGD; record the eigenvalues of all images every few steps."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        images = torch.from_numpy(read_digits()[0].images[:IMAGES]).squeeze(-1).float() / 255
        hidden = (nn.Linear(64, WIDTH, bias=False), nn.BatchNorm1d(WIDTH), nn.ReLU())
        network = nn.Sequential(*hidden, nn.Linear(WIDTH, DIM))
        optimizer = torch.optim.SGD(network.parameters(), lr=LR, momentum=MOMENTUM)
        views = two_views(images)
        normalised, plain = [], []
        for step in range(STEPS + 1):
            if step % EVERY == 0:
                with torch.no_grad():
                    z = torch.stack([network(view) for view in views]).double()
                first = centred(z[0])
                normalised.append(eigenvalues(first / first.square().sum(dim=0).sqrt()))
                plain.append(eigenvalues(centred(z.flatten(0, 1))))
            batch = views[:, torch.randperm(IMAGES)[:BATCH]]
            optimizer.zero_grad()
            loss(torch.stack([network(view) for view in batch])).backward()
            optimizer.step()
    return Spectra(torch.stack(normalised), torch.stack(plain))
