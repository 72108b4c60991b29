"""Count the bytes that a process sends in a training step, by purpose.

    torchrun --standalone --nproc-per-node 2 -m benchmarks.communication

The numbers depend on the batch, the network and the number of processes, but not on the machine. So you can count them
on a CPU. The images are small, because their size has no effect.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from benchmarks.results import Table, keep
from twofold import dist
from twofold.display import Display
from twofold.train.trainer import Trainer
from twofold.verbs import pretrain

WHATS = ("gradients", "embeddings", "rows", "moments", "observers", "statistics")
MIB = 2**20
CASES: dict[str, tuple[str, dict[str, object]]] = {
    "simclr": ("simclr", {}),
    "frossl": ("frossl", {}),
    "frossl, moments": ("frossl", {"projector": "256,64", "encoder": "conv", "batch_size": 1024}),
    "frossl, gather": ("frossl", {"projector": "256,1024", "encoder": "conv", "batch_size": 1024}),
    "byol": ("byol", {}),
    "ridge-graph": ("ridge-graph", {}),
    "dino": ("dino", {}),
    "diet": ("diet", {}),
    "s-diet": ("s-diet", {}),
}
BATCHES = {"s-diet": 64}  # batches in the dataset if not 2: S-DIET assigns rows to processes in groups of some hundreds


def step_traffic(method: str, overrides: dict[str, object], encoder: str, batch_size: int) -> dict[str, float]:
    """Return the MiB that this process sends in the second step; the first also creates the optimizer state."""
    keys = {"encoder": encoder, "batch_size": batch_size, "test_fraction": 0.0, "epochs": 1} | overrides
    images = BATCHES.get(method, 2) * int(str(keys["batch_size"]))
    generator = np.random.default_rng(0)
    data = generator.integers(0, 256, (images, 8, 8, 3), dtype=np.uint8), np.arange(images) % 10
    config, source = pretrain.configure(data, method, keys)
    display = Display(quiet=True)
    trainer = Trainer(config, pretrain.read_data(config, source, display), display)
    trainer.method.train()
    trainer.take_step(0)
    before = dist.traffic()
    trainer.take_step(1)
    return {what: sent / MIB for what, sent in (dist.traffic() - before).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="resnet18")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument(
        "--case", choices=sorted(CASES), action="append", help="case to measure; repeatable [default: all]"
    )
    parser.add_argument(
        "--out", type=Path, help="JSON file to write [default: benchmarks/results/communication-DATE.json]"
    )
    parser.add_argument("--commit", default="")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with dist.joined():
        table = Table("case", "total MiB", *WHATS)
        for case in asked.case or CASES:
            sent = step_traffic(*CASES[case], asked.encoder, asked.batch_size)
            if dist.is_first():
                table.add({"case": case, "total MiB": sum(sent.values()), **sent})
        if dist.is_first():
            settings = {"encoder": asked.encoder, "batch size": asked.batch_size, "processes": dist.count()}
            print(f"wrote {keep('communication', table, settings, 'cpu', asked.commit, asked.out)}")


if __name__ == "__main__":
    main()
