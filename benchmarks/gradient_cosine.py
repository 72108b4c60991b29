"""How near batch cross entropy is to full cross entropy: the cosine of the encoder's two gradients.

    python -m benchmarks.gradient_cosine [--encoders resnet18,resnet50] [--batches 64,128,256,512] [--data cifar100]
    python -m benchmarks.gradient_cosine --along diet --data digits [epochs=60 ...]

Without `--along` at initialisation, beside the paper's Table 2 (S-DIET, on CIFAR-100): encoder, projector
K-2048-2048-512, z of unit length, rows N(0, 1/512), label smoothing 0.8. With it, at steps spread evenly on a log scale
over a run of that method, for its own rows as they are then. "corrected" is sampled softmax
(`population=n`); "theory" is √((1−1/b)/(1−1/n)), which holds for dL/dz with rows that are random and independent.

b images in a batch, n in all, D dimensions.
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
    """Of the weights that made z[b, D], under full cross entropy over rows[n, D] and what stands for it; z[i] is of
    class own[i], which are distinct."""
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
    """Of the encoder's gradients, to that of full cross entropy; the projector's and the rows' do not count."""
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
    if data is None:  # pictures of nothing, but smooth as pictures are
        coarse = torch.from_numpy(np.random.default_rng(0).random((options.images, 3, 8, 8), dtype=np.float32))
        smooth = functional.interpolate(coarse, size=32, mode="bilinear")
        data = (255 * smooth).to(torch.uint8).permute(0, 2, 3, 1).numpy()
    keys = {"device": options.device, "data_dir": options.data_dir, "compile": False, "precision": "float32"} | keys
    config, source = configure(data, method, keys)
    return Trainer(config, read_data(config, source, Display(quiet=True)), Display(quiet=True))


def at_initialisation(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One view of each image, augmented as DIET's are, through networks in training mode."""
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
    """One for each image, as training has left them; rows outside the network are caught up to the last step."""
    if not isinstance(trainer.rows, SampleRows):
        return trainer.method.head.weight.detach()
    trainer.rows.save()
    return trainer.rows.head.dense().to(trainer.device, torch.float32)


def along_training(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """At steps of a run, on the batch that is next."""
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
    parser.add_argument("--repeats", type=int, default=1, help="seeds, at initialisation")
    parser.add_argument("--along", metavar="METHOD", help="diet or s-diet: follow a run of it")
    parser.add_argument("--points", type=int, default=16, help="steps of the run to measure at")
    parser.add_argument("--data", help="as for twofold pretrain; none: smooth random images of CIFAR's shape")
    parser.add_argument("--data-dir", default="data")
    parser.add_argument("--images", type=int, default=50_000, help="how many random ones")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", default="", help="where git cannot be asked")
    parser.add_argument("override", nargs="*", help="key=value of the run")
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
