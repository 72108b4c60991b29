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
            "This page shows how fast Twofold trains on a GPU, compared with the bare network and with another",
            "library, lightly.",
            "",
            "A training step takes pixels in memory and updates the weights: augmentation, forward pass, objective,",
            "backward pass and optimizer. The bare network has only the forward and backward passes and an SGD step,",
            "on views that are already in GPU memory. Its speed is the upper limit for the method.",
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
            "This comparison uses FroSSL. Encoder, batch size, precision and loss are the same for both libraries.",
            f"There are three differences: lightly runs its transforms in {loaders} loader processes, its projector",
            "has one layer less, and its optimizer is SGD instead of LARS.",
            "",
            f"We measured these numbers with `python -m benchmarks.throughput` on {found['date']}, with commit",
            f"{found['commit']}. They are in `benchmarks/results/{file.name}`.",
            "[Results](results.md) shows the speed of complete runs.",
            "",
        ]
    )


def cells(row: dict[str, Any]) -> list[str]:
    numbers = [f"{row['views/s']:,.0f}", f"{row['ceiling']:,.0f}", f"{row['share']:.0%}", f"{row['MiB']:,.0f}"]
    return [row["method"], *numbers]
