"""Peak memory of a training step of each method, beside S-DIET's Table 6.

    python -m benchmarks.memory [--methods s-diet,diet,simclr] [--encoders resnet18] [--precisions float32,bf16]

CIFAR shapes, batch 256, 50,000 images, which lie in host memory as the paper's do; each method with its own defaults.
On CUDA a few real steps are taken, and "MiB" is the most that torch had allocated; "reserved" is what it had asked the
driver for, to which a tool such as nvidia-smi adds the CUDA context. The paper does not say how it measured.

"counted" needs no accelerator and computes nothing: weights, gradients, optimizer state, and what autograd keeps of the
forward pass, from tensors without values. A step needs somewhat more, for what lives only while a kernel runs.
"""

import argparse
import gc
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call

from benchmarks.measure import MIB
from benchmarks.results import Table, keep
from twofold.data import store
from twofold.data.load import read_data
from twofold.display import Display
from twofold.methods import Method
from twofold.methods.registry import CATALOG
from twofold.train.trainer import Trainer
from twofold.types import Batch
from twofold.verbs.pretrain import configure

METHODS = "s-diet,diet,simclr,simsiam,barlow-twins,byol,frossl"
PUBLISHED = {  # MiB; S-DIET, Table 6: CIFAR, batch 256, 32-bit
    "s-diet": {"resnet18": 2312, "resnet50": 7770},
    "diet": {"resnet18": 2556, "resnet50": 9720},
    "simclr": {"resnet18": 3896, "resnet50": 16408},
    "simsiam": {"resnet18": 3964, "resnet50": 16562},
    "barlow-twins": {"resnet18": 4026, "resnet50": 17090},
    "byol": {"resnet18": 4512, "resnet50": 17296},
}
STATE = {"sgd": 1, "lars": 1, "adam": 2, "adamw": 2}  # numbers that the optimizer keeps for each weight
STEPS = 4


def build(method: str, encoder: str, precision: str, options: argparse.Namespace) -> Trainer:
    images = np.random.default_rng(0).integers(0, 256, (options.images, 32, 32, 3), dtype=np.uint8)
    keys = {
        "encoder": encoder,
        "precision": precision,
        "batch_size": options.batch,
        "device": options.device,
        "compile": options.compile,
    }
    config, source = configure(images, method, keys | options.override)
    return Trainer(config, read_data(config, source, Display(quiet=True)), Display(quiet=True))


class Loss(nn.Module):
    """Of a method, as one module."""

    def __init__(self, method: Method):
        super().__init__()
        self.method = method

    def forward(self, views: Tensor, batch: Batch) -> Tensor:
        embeddings = self.method(views, batch)
        with torch.autocast(views.device.type, enabled=False):
            self.method.prepare(embeddings.z)
            return self.method.objective(embeddings).total


class Kept:
    """What autograd keeps for the backward pass, each storage once, less the weights themselves."""

    def __init__(self) -> None:
        self.bytes = 0
        self.known: set[int] = set()
        self.alive: list[Tensor] = []  # so that no storage takes the place of another that is counted

    def count(self, tensor: Tensor, size: int | None = None) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self.known:
            self.known.add(storage._cdata)
            self.alive.append(tensor)
            self.bytes += storage.nbytes() if size is None else size
        return tensor


def kept_bytes(trainer: Trainer) -> int:
    """Of the forward pass and the loss; tensors have shapes but no values, so any size is quick and takes no memory."""
    config, channels = trainer.config, trainer.data.train.images.shape[1]
    side = config.image_size
    trainer.method.train()
    kept = Kept()
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    step = Loss(trainer.method)
    state = {name: fake.from_tensor(tensor) for name, tensor in step.state_dict(keep_vars=True).items()}
    for tensor in state.values():
        kept.count(tensor, 0)
    with fake, torch.autograd.graph.saved_tensors_hooks(kept.count, lambda tensor: tensor):
        index = torch.arange(config.batch_size)
        images = torch.empty(config.batch_size, channels, side, side, dtype=torch.uint8)
        views = torch.empty(config.views, config.batch_size, channels, side, side)
        with torch.autocast("cpu", torch.bfloat16, enabled=config.precision == "bf16"):
            loss = functional_call(step, state, (views, Batch(images, index, index, None)))
        assert loss.requires_grad
    return kept.bytes


def counted(trainer: Trainer) -> dict[str, float]:
    trained = sum(parameter.nbytes for _, parameter in trainer.method.trained_parameters())
    every = sum(tensor.nbytes for tensor in trainer.method.state_dict().values())
    parts = {
        "weights": every,
        "gradients": trained,
        "optimizer": STATE[trainer.config.optimizer] * trained,
        "kept": kept_bytes(trainer),
    }
    mib = {name: size / MIB for name, size in parts.items()}
    return {"counted": sum(mib.values())} | mib


def measured(trainer: Trainer) -> dict[str, float]:
    """In real steps on CUDA. What the trainer holds already is a part of it."""
    trainer.method.train()
    torch.cuda.reset_peak_memory_stats()
    for step in range(STEPS):
        trainer.take_step(step)
        trainer.step += 1
    torch.cuda.synchronize()
    return {"MiB": torch.cuda.max_memory_allocated() / MIB, "reserved": torch.cuda.max_memory_reserved() / MIB}


def row(method: str, encoder: str, precision: str, options: argparse.Namespace) -> dict[str, Any]:
    gc.collect()
    if options.device == "cuda":
        torch.cuda.empty_cache()
    trainer = build(method, encoder, precision, options)
    on_device = options.device == "cuda"
    numbers = measured(trainer) if on_device else counted(trainer)
    published = PUBLISHED.get(method, {}).get(encoder) if precision == "float32" else None
    return {"method": method, "encoder": encoder, "precision": precision, **numbers, "paper": published}


def with_ratios(rows: list[dict[str, Any]], column: str) -> list[dict[str, Any]]:
    """Each beside SimCLR's number of the same column, ours and the paper's."""
    reference = {(r["encoder"], r["precision"]): r for r in rows if r["method"] == "simclr"}
    for r in rows:
        base = reference.get((r["encoder"], r["precision"]))
        for name, ratio in ((column, "to simclr"), ("paper", "paper's")):
            r[ratio] = r[name] / base[name] if base and r[name] and base[name] else None
    return rows


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--encoders", default="resnet18,resnet50")
    parser.add_argument("--precisions", default="float32,bf16")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--compile", action="store_true", help="the step as one graph, as in long runs")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", default="", help="where git cannot be asked")
    parser.add_argument("override", nargs="*", help="key=value for every method")
    options = parser.parse_args(words)
    options.override = dict(item.split("=", 1) for item in options.override)
    return options


def main(words: list[str] | None = None) -> None:
    options = arguments(words)
    store.DEVICE_SHARE = 0.0
    column = "MiB" if options.device == "cuda" else "counted"
    rows = []
    for precision in options.precisions.split(","):
        for encoder in options.encoders.split(","):
            for method in options.methods.split(","):
                if method not in CATALOG:
                    print(f"{method} is not in the catalog: left out")
                    continue
                rows.append(row(method, encoder, precision, options))
                print(f"{method}, {encoder}, {precision}: {rows[-1][column]:,.0f} MiB", flush=True)
    table = Table("method", "encoder", "precision", column, "to simclr", "paper", "paper's")
    for r in with_ratios(rows, column):
        table.add(r)
    settings = {key: value for key, value in vars(options).items() if key not in ("out", "commit")}
    name = f"memory-{'cuda' if options.device == 'cuda' else 'counted'}"
    print(keep(name, table, settings, options.device, options.commit, options.out))


if __name__ == "__main__":
    main()
