"""docs/benchmarks.md: the speed and the memory of a training step."""

import json
from typing import Any

from generators import paths
from generators.markdown import table

WITH_LIGHTLY = "throughput-h200-*with-lightly.json"


def page() -> str:
    file = max(paths.BENCHMARKS.glob(WITH_LIGHTLY))
    found = json.loads(file.read_text(encoding="utf-8"))
    settings, rows = found["settings"], found["rows"]
    lightly = next(row for row in rows if row["method"].startswith("lightly"))
    loaders = lightly["method"].split()[1]
    titles = ["method", "views/s", "bare network, views/s", "share of the bare network", "memory, MiB"]
    return "\n".join(
        [
            "<!-- Written by docs/generate.py from benchmarks/results/. Do not edit. -->",
            "",
            "# Benchmarks",
            "",
            "This page shows how fast Twofold trains on a GPU, compared with the bare network and with lightly.",
            "",
            "A training step goes from pixels in memory to updated weights: augmentation, forward pass, objective,",
            "backward pass and optimizer. The bare network is the upper limit for a method: the forward and backward",
            "passes of the same network and SGD, on views that are ready in GPU memory.",
            "",
            f"Measured on one {found['machine']}: ResNet-18, images of {settings['size']} pixels, batch size "
            f"{settings['batch']}, bfloat16, PyTorch {found['torch']}.",
            "",
            *table(titles, [cells(row) for row in rows if row is not lightly]),
            "",
            "## Compared with lightly",
            "",
            *table(
                ["FroSSL", "views/s", "memory, MiB"],
                [
                    [name, f"{row['views/s']:,.0f}", f"{row['MiB']:,.0f}"]
                    for name, row in (("Twofold", rows[0]), ("lightly 1.6", lightly))
                ],
            ),
            "",
            f"lightly runs its transforms in {loaders} loader processes. Encoder, batch size, precision and loss are",
            "the same. lightly's projector has one layer less, and its optimizer is SGD instead of LARS.",
            "",
            f"The numbers are in `benchmarks/results/{file.name}`, which `python -m benchmarks.throughput` wrote on",
            f"{found['date']} with commit {found['commit']}. [Results](results.md) shows the speed of complete runs.",
            "",
        ]
    )


def cells(row: dict[str, Any]) -> list[str]:
    numbers = [f"{row['views/s']:,.0f}", f"{row['ceiling']:,.0f}", f"{row['share']:.0%}", f"{row['MiB']:,.0f}"]
    return [row["method"], *numbers]
