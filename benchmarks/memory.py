"""Measure the peak memory of a training step of each method, compared with Table 6 of S-DIET.

    python -m benchmarks.memory [--methods s-diet,diet,simclr] [--encoders resnet18] [--precisions float32,bf16]

Each method runs with its own defaults on 50,000 images of CIFAR shape with batch size 256. The images are in host
memory, as in the paper. For Tiny-ImageNet, pass `--size 64 --images 100000 stem=large`, and for ImageNet-100
`--size 224 --images 2000`: images of this size need much memory, and only DIET's memory depends on their number. The
paper's numbers are shown for the sizes and settings that it has.

On CUDA, a few training steps are run. "MiB" is the peak of allocated memory. "reserved" is the peak of memory that
torch requested from the driver; tools such as nvidia-smi add the CUDA context. The paper does not state how it
measured.

"counted" needs no GPU: it adds up weights, gradients, optimizer state and the tensors that autograd keeps from the
forward pass, using tensors without values. A real step needs slightly more, because kernels use temporary memory.
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
from twofold_papers.s_diet.tables.table_6 import published_mib

METHODS = "s-diet,diet,simclr,simsiam,barlow-twins,byol,frossl"
STATE = {"sgd": 1, "lars": 1, "adam": 2, "adamw": 2}  # numbers of optimizer state per weight
STEPS = 4


def build(method: str, encoder: str, precision: str, options: argparse.Namespace) -> Trainer:
    images = np.random.default_rng(0).integers(0, 256, (options.images, options.size, options.size, 3), dtype=np.uint8)
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
    """The loss of a method as a module."""

    def __init__(self, method: Method):
        super().__init__()
        self.method = method

    def forward(self, views: Tensor, batch: Batch) -> Tensor:
        embeddings = self.method(views, batch)
        with torch.autocast(views.device.type, enabled=False):
            self.method.prepare(embeddings.z)
            return self.method.objective(embeddings).total


class Kept:
    """Counts the bytes that autograd keeps for the backward pass: each storage once, without the weights."""

    def __init__(self) -> None:
        self.bytes = 0
        self.known: set[int] = set()
        self.alive: list[Tensor] = []  # prevents a new storage from reusing the address of a counted one

    def count(self, tensor: Tensor, size: int | None = None) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self.known:
            self.known.add(storage._cdata)
            self.alive.append(tensor)
            self.bytes += storage.nbytes() if size is None else size
        return tensor


def kept_bytes(trainer: Trainer) -> int:
    """Return the bytes that autograd keeps from forward pass and loss.

    The tensors have shapes but no values, so that every size is fast and needs no memory.
    """
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
    """Return the peak memory of training steps on CUDA, including what the trainer had allocated before."""
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
    published = published_mib(method, encoder, trainer.config.image_size) if is_published(precision, options) else None
    settings = {"method": method, "encoder": encoder, "precision": precision, "size": trainer.config.image_size}
    return {**settings, **numbers, "paper": published}


def is_published(precision: str, options: argparse.Namespace) -> bool:
    """Whether the paper measured with these settings. Further settings of the user change what is measured."""
    return precision == "float32" and options.batch == 256 and not options.override.keys() - {"image_size", "stem"}


def with_ratios(rows: list[dict[str, Any]], column: str) -> list[dict[str, Any]]:
    """Add the ratio of each number to that of SimCLR, for our numbers and for those of the paper."""
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
    parser.add_argument("--size", type=int, default=32, help="side of the images, in pixels")
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--compile", action="store_true", help="record the step as a CUDA graph, as in long runs")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", default="", help="the commit to record, if git is not available")
    parser.add_argument("override", nargs="*", help="configuration of all methods, as key=value")
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
                    print(f"{method} is not in the catalog and is skipped")
                    continue
                rows.append(row(method, encoder, precision, options))
                print(f"{method}, {encoder}, {precision}: {rows[-1][column]:,.0f} MiB", flush=True)
    table = Table("method", "encoder", "precision", "size", column, "to simclr", "paper", "paper's")
    for r in with_ratios(rows, column):
        table.add(r)
    settings = {key: value for key, value in vars(options).items() if key not in ("out", "commit")}
    name = f"memory-{'cuda' if options.device == 'cuda' else 'counted'}"
    print(keep(name, table, settings, options.device, options.commit, options.out))


if __name__ == "__main__":
    main()
