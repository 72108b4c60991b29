"""lightly's pipeline on a CPU: SimCLR's transforms, the network and NT-Xent. `benchmarks/cpu.py` starts it.

    python -m benchmarks.lightly_cpu ENCODER SIZE BATCH THREADS WORKERS PRECISION

The process takes a training step for each line on its standard input, and prints the seconds of the step.
"""

import sys
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler

from benchmarks.lightly_pipeline import Pictures

PROJECTOR = (2048, 256)  # as in Twofold's SimCLR
LARGEST_UNPOOLED, LARGEST_3X3, BLURRED_FROM = 48, 80, 81  # pixels, as in Twofold: stems and blur


def build_network(encoder: str, size: int) -> nn.Module:
    """Return the encoder with SimCLR's projector: torchvision's ResNet, timm's model or Twofold's small network."""
    if encoder.startswith("timm:"):
        import timm

        body = timm.create_model(encoder.removeprefix("timm:"), img_size=size, num_classes=0)
        width = body.num_features
    elif encoder == "conv":
        from twofold.models import build_encoder

        body = build_encoder("conv", channels=3, stem="small", image_size=size)
        width = body.features
    else:
        import torchvision

        body = getattr(torchvision.models, encoder)()
        if size <= LARGEST_3X3:
            body.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        if size <= LARGEST_UNPOOLED:
            body.maxpool = nn.Identity()
        width = body.fc.in_features
        body.fc = nn.Identity()
    hidden, out = PROJECTOR
    head = nn.Sequential(
        nn.Linear(width, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, out)
    )
    return nn.Sequential(body, head).to(memory_format=torch.channels_last)


def batches(size: int, batch: int, workers: int) -> Iterator[list[Tensor]]:
    from lightly.transforms.simclr_transform import SimCLRTransform

    blur = 0.5 if size >= BLURRED_FROM else 0.0
    transform = SimCLRTransform(input_size=size, cj_strength=0.8, gaussian_blur=blur)
    pictures = Pictures(4 * batch, size, transform)
    # One long epoch: at the start of an epoch, processes load several batches at once, and then none for some steps.
    sampler = RandomSampler(pictures, replacement=True, num_samples=10_000 * batch)
    yield from DataLoader(pictures, batch, sampler=sampler, num_workers=workers)


def main() -> None:
    from lightly.loss import NTXentLoss

    encoder, size, batch, threads, workers, precision = sys.argv[1:]
    torch.set_num_threads(int(threads))
    clock = time.process_time if threads == "1" else time.perf_counter
    model, criterion = build_network(encoder, int(size)), NTXentLoss(temperature=0.2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    views = batches(int(size), int(batch), int(workers))
    for _ in sys.stdin:
        start = clock()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            z = [model(view.contiguous(memory_format=torch.channels_last)) for view in next(views)]
        loss = criterion(*(each.float() for each in z))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(clock() - start, flush=True)


if __name__ == "__main__":
    main()
