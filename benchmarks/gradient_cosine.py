"""Compare batch cross entropy with full cross entropy by the cosine of their gradients of the encoder.

    python -m benchmarks.gradient_cosine [--encoders resnet18,resnet50] [--batches 64,128,256,512] [--data cifar100]
    python -m benchmarks.gradient_cosine --along diet --data digits [epochs=60 ...]

Without `--along`, the cosines are measured at initialisation and compared with Table 2 of S-DIET (on CIFAR-100):
encoder, projector K-2048-2048-512, z of unit length, classifier rows N(0, 1/512), label smoothing 0.8. With `--along
METHOD`, they are measured during a run of that method, with its own classifier rows, at steps that are evenly spaced on
a log scale.

"batch" is batch cross entropy, "corrected" is sampled softmax (`population=n`). "theory" is √((1−1/b)/(1−1/n)), which
holds for dL/dz if rows are random and independent.

Shapes: b images in a batch, n images in total, D dimensions.
"""

import argparse
import copy
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.results import Table, keep
from twofold.data.load import read_data
from twofold.display import Display
from twofold.models import build_encoder, mlp
from twofold.objectives import batch_cross_entropy
from twofold.train.sample_rows import SampleRows
from twofold.train.trainer import Trainer
from twofold.verbs.pretrain import configure

LABEL_SMOOTHING = 0.8
WIDTHS = (2048, 2048, 512)
PUBLISHED = {  # S-DIET, Table 2
    "resnet18": {64: 0.9944, 128: 0.9965, 256: 0.9975, 512: 0.9980},
    "resnet50": {64: 0.9960, 128: 0.9980, 256: 0.9990, 512: 0.9995},
}


def gradients(z: Tensor, rows: Tensor, own: Tensor, weights: list[Tensor], smoothing: float) -> dict[str, Tensor]:
    """Return the gradients of `weights` under full, batch and corrected cross entropy.

    `weights` are those that computed z[b, D]. The classifier rows are rows[n, D]. The class of z[i] is own[i], and
    these classes are distinct.
    """
    sampled, labels = rows[own], torch.arange(len(own), device=z.device)
    losses = {
        "full": batch_cross_entropy(z, rows, own, label_smoothing=smoothing),
        "batch": batch_cross_entropy(z, sampled, labels, label_smoothing=smoothing),
        "corrected": batch_cross_entropy(z, sampled, labels, label_smoothing=smoothing, population=len(rows)),
    }
    return {
        name: torch.cat([g.flatten() for g in torch.autograd.grad(loss.total, weights, retain_graph=True)])
        for name, loss in losses.items()
    }


def cosines(
    encoder: nn.Module, projector: nn.Module, x: Tensor, rows: Tensor, own: Tensor, *, normalize: bool, smoothing: float
) -> dict[str, float]:
    """Return the cosines of the gradients of the encoder with its gradient under full cross entropy.

    Gradients of projector and classifier rows are not included.
    """
    z = projector(encoder(x))
    z = functional.normalize(z, dim=-1) if normalize else z
    found = gradients(z, rows, own, list(encoder.parameters()), smoothing)
    full = found.pop("full").double()
    values = {name: functional.cosine_similarity(full, g.double(), dim=0).item() for name, g in found.items()}
    return values | {"logit sd": (z.detach() @ rows.T).std().item()}


def theory(b: int, n: int) -> float:
    return math.sqrt((1 - 1 / b) / (1 - 1 / n))


def trainer_of(method: str, options: argparse.Namespace, keys: dict[str, Any]) -> Trainer:
    data: Any = options.data
    if data is None:  # random images that are smooth, like photographs
        coarse = torch.from_numpy(np.random.default_rng(0).random((options.images, 3, 8, 8), dtype=np.float32))
        smooth = functional.interpolate(coarse, size=32, mode="bilinear")
        data = (255 * smooth).to(torch.uint8).permute(0, 2, 3, 1).numpy()
    keys = {"device": options.device, "data_dir": options.data_dir, "compile": False, "precision": "float32"} | keys
    config, source = configure(data, method, keys)
    return Trainer(config, read_data(config, source, Display(quiet=True)), Display(quiet=True))


def at_initialisation(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure at initialisation: one view of each image with the augmentation of DIET, networks in training mode."""
    for b in options.batches:
        source = trainer_of("diet", options, {"batch_size": b, "encoder": "conv", **options.override})
        n, device = len(source.data.train), source.device
        for name in options.encoders:
            measured = []
            for seed in range(options.repeats):
                torch.manual_seed(seed)
                channels, stem = source.data.train.images.shape[1], source.config.stem
                encoder = build_encoder(name, channels=channels, stem=stem, image_size=source.config.image_size or 32)
                features = encoder.features
                projector = mlp(features, WIDTHS)
                rows = torch.randn(n, WIDTHS[-1]) / math.sqrt(WIDTHS[-1])
                batch = source.loader.batch(seed)
                (views,) = source.make_views(batch.images, batch.position, torch.tensor(seed, device=device))
                own = torch.searchsorted(source.data.train.index.to(device), batch.index)
                measured.append(
                    cosines(
                        encoder.to(device),
                        projector.to(device),
                        views[0],
                        rows.to(device),
                        own,
                        normalize=True,
                        smoothing=LABEL_SMOOTHING,
                    )
                )
            mean = {key: float(np.mean([row[key] for row in measured])) for key in measured[0]}
            yield {
                "encoder": name,
                "b": b,
                "n": n,
                **mean,
                "each": measured,
                "theory": theory(b, n),
                "paper": PUBLISHED.get(name, {}).get(b),
            }


def head_rows(trainer: Trainer) -> Tensor:
    """Return the current classifier rows, one for each image. Rows stored outside the network are updated first."""
    if not isinstance(trainer.rows, SampleRows):
        return trainer.method.head.weight.detach()
    trainer.rows.save()
    return trainer.rows.head.dense().to(trainer.device, torch.float32)


def along_training(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure at steps of a run, on the next batch."""
    trainer = trainer_of(options.along, options, options.override)
    parameters = trainer.config.parameters
    normalize, smoothing = parameters.get("normalize", False), parameters["label_smoothing"]
    last = trainer.total_steps - 1
    points = {0, last} | {round(last ** (k / (options.points - 1))) for k in range(options.points)}
    trainer.method.train()
    own_index = trainer.data.train.index.to(trainer.device)
    for step in range(trainer.total_steps):
        if step in points:
            batch = trainer.loader.batch(step)
            (views,) = trainer.make_views(batch.images, batch.position, torch.tensor(step, device=trainer.device))
            networks = copy.deepcopy(
                (trainer.method.encoder, trainer.method.projector)
            )  # BatchNorm counts what it sees
            own = torch.searchsorted(own_index, batch.index)
            found = cosines(*networks, views[0], head_rows(trainer), own, normalize=normalize, smoothing=smoothing)
            b, n = len(own), len(own_index)
            yield {"step": step, "epoch": step / trainer.loader.steps_per_epoch, "b": b, "n": n, **found}
        trainer.take_step(step)
        trainer.step += 1


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoders", default="resnet18,resnet50")
    parser.add_argument("--batches", default="64,128,256,512")
    parser.add_argument("--repeats", type=int, default=1, help="number of seeds at initialisation")
    parser.add_argument("--along", metavar="METHOD", help="diet or s-diet: measure during a run of this method")
    parser.add_argument("--points", type=int, default=16, help="number of steps of the run at which to measure")
    parser.add_argument("--data", help="data as for twofold pretrain [default: smooth random images of 32 pixels]")
    parser.add_argument("--data-dir", default="data")
    parser.add_argument("--images", type=int, default=50_000, help="number of random images")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", default="", help="the commit to record, if git is not available")
    parser.add_argument("override", nargs="*", help="configuration of the run, as key=value")
    options = parser.parse_args(words)
    options.encoders = options.encoders.split(",")
    options.batches = [int(b) for b in options.batches.split(",")]
    options.override = dict(item.split("=", 1) for item in options.override)
    return options


def main(words: list[str] | None = None) -> None:
    options = arguments(words)
    if options.along is None:
        name, table = "gradient-cosine", Table("encoder", "b", "batch", "corrected", "theory", "paper")
        rows = at_initialisation(options)
    else:
        name, table = f"gradient-cosine-{options.along}", Table("step", "epoch", "batch", "corrected", "logit sd")
        rows = along_training(options)
    settings = {key: value for key, value in vars(options).items() if key not in ("out", "commit", "data_dir")}
    for row in rows:
        table.add(row)
        keep(name, table, settings, options.device, options.commit, options.out)


if __name__ == "__main__":
    main()
