"""Time the pipeline of lightly with the same network, batch and precision.

It runs the transforms in loader processes and uses the FroSSL loss of lightly.
"""

import argparse
import os
import time
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LOADERS = 16  # largest number of loader processes
WARM_UP = 20


class Pictures(Dataset):
    """Random images, one PIL image at a time, as the transforms of lightly expect."""

    def __init__(self, images: int, size: int, transform: Any):
        self.pixels = np.random.default_rng(0).integers(0, 256, (images, size, size, 3), dtype=np.uint8)
        self.transform = transform

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, row: int) -> Any:
        from PIL import Image

        return self.transform(Image.fromarray(self.pixels[row]))


def network(encoder: str, size: int) -> nn.Module:
    """Return the encoder of torchvision, with the stem for small images and the projector 2048-1024."""
    import torchvision

    body = getattr(torchvision.models, encoder)()
    if size <= 64:
        body.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        body.maxpool = nn.Identity()
    width = body.fc.in_features
    body.fc = nn.Sequential(nn.Linear(width, 2048), nn.BatchNorm1d(2048), nn.ReLU(), nn.Linear(2048, 1024))
    return body.cuda().to(memory_format=torch.channels_last)


def measure_lightly(options: argparse.Namespace) -> dict[str, Any]:
    """Return views per second and peak memory as a row of the table."""
    from lightly.loss.frossl_loss import FroSSLLoss
    from lightly.transforms.simclr_transform import SimCLRTransform

    torch.backends.cudnn.benchmark = True
    transform = SimCLRTransform(input_size=options.size, cj_strength=0.5, gaussian_blur=0.0)
    workers = min(LOADERS, os.cpu_count() or 1)
    loader = DataLoader(
        Pictures(options.images, options.size, transform),
        options.batch,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        pin_memory=True,
        persistent_workers=True,
    )
    model, criterion = network(options.encoder, options.size), FroSSLLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    torch.cuda.reset_peak_memory_stats()
    steps, start = 0, 0.0
    while steps < WARM_UP + options.steps:
        for views in loader:
            if steps == WARM_UP:
                torch.cuda.synchronize()
                start = time.perf_counter()
            x = [view.cuda(non_blocking=True).contiguous(memory_format=torch.channels_last) for view in views]
            with torch.autocast("cuda", dtype=torch.bfloat16):
                z = [model(view) for view in x]
            loss = criterion([view.float() for view in z])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            if steps == WARM_UP + options.steps:
                break
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - start) / options.steps
    return {
        "method": f"lightly, {workers} loaders",
        "views/s": 2 * options.batch / seconds,
        "MiB": torch.cuda.max_memory_allocated() / 2**20,
    }
