"""docs/benchmarks.md: the speed and the memory of a training step, on a GPU and on a CPU, and of large folders."""

import json
from typing import Any

from generators import paths
from generators.markdown import table

WITH_LIGHTLY = "throughput-h200-*with-lightly.json"
PER_METHOD = "throughput-h200-20??-??-??.json"
ON_CPU = "cpu-2-threads-with-lightly-*.json"
MEMORY_GROWTH = "memory-growth-cpu-*.json"
NETWORKS = {"conv": "conv", "resnet18": "ResNet-18", "vit": "ViT-tiny (timm)"}


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
            "This page shows how fast Twofold trains on a GPU and on a CPU, compared with the bare network and with",
            "another library, lightly. The last section shows how memory grows with the number of images.",
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
            *newest_section(titles),
            *cpu_section(),
            *memory_section(),
        ]
    )


def newest_section(titles: list[str]) -> list[str]:
    """The newest measurement, which has methods that the comparison does not have."""
    file = max(paths.BENCHMARKS.glob(PER_METHOD))
    found = json.loads(file.read_text(encoding="utf-8"))
    return [
        "## The newest measurement",
        "",
        f"This is the same measurement on {found['date']}, with commit {found['commit']}, without lightly "
        f"(`benchmarks/results/{file.name}`). S-DIET and DIET have one view of each image in a step, the other",
        "methods two.",
        "",
        *table(titles, [cells(row) for row in found["rows"]]),
        "",
    ]


def cpu_section() -> list[str]:
    file = max(paths.BENCHMARKS.glob(ON_CPU))
    found = json.loads(file.read_text(encoding="utf-8"))
    titles = ["network", "pixels", "batch", "precision", "views/s", "share of the bare network", "times lightly"]
    titles[-1:] = ["times lightly", "times lightly in float32", "times Twofold in float32"]
    return [
        "## On two CPU cores",
        "",
        "On a CPU, the bare network is measured in three forms: all views in one pass, a pass for each view, and two",
        "passes for each view. The fastest counts. lightly's pipeline has the same encoder, batch size, precision and",
        "number of threads, and 0 or 2 loader processes, of which the faster counts.",
        "",
        *table(titles, [cpu_cells(row) for row in found["rows"]]),
        "",
        "Measured on two cores of an AMD EPYC processor with AVX-512 and instructions for bfloat16, SimCLR, PyTorch",
        f"{found['torch'].split('+')[0]}. Shares and ratios are medians over {found['settings']['rounds']} rounds in "
        "which everything takes one",
        "step in turn, in random order. They vary by some percent. Above 100 %,",
        "Twofold is faster than PyTorch's network, because large linear layers use oneDNN",
        "([note 116](decisions/116-large-linear-layers-use-onednn-on-amd-processors.md)).",
        "",
        f"We measured these numbers with `python -m benchmarks.cpu --lightly PYTHON` on {found['date']}, with commit",
        f"{found['commit']}. They are in `benchmarks/results/{file.name}`, with the quartiles of the shares.",
        "",
    ]


def memory_section() -> list[str]:
    file = max(paths.BENCHMARKS.glob(MEMORY_GROWTH))
    found = json.loads(file.read_text(encoding="utf-8"))
    memory = {(row["command"].partition(",")[0], row["files"]): row for row in found["rows"]}
    sizes = sorted({files for _, files in memory})
    smallest, largest = sizes[0], sizes[-1]
    commands = list(dict.fromkeys(command for command, _ in memory))

    def cell(command: str, files: int) -> str:
        row = memory.get((command, files))
        return "" if row is None else f"{row['own, MiB']:,.0f} ({row['with files, MiB']:,.0f})"

    def growth(command: str) -> str:
        if (command, largest) not in memory:
            return ""
        own = [memory[command, files]["own, MiB"] for files in (smallest, largest)]
        return f"{(own[1] - own[0]) * 2**20 / (largest - smallest):,.0f}"

    titles = ["command", *(f"{files:,} files" for files in sizes), "bytes per file"]
    rows = [[command, *(cell(command, files) for files in sizes), growth(command)] for command in commands]
    return [
        "## Memory and the number of images",
        "",
        "Pixels and features are in memory-mapped files. What stays in memory is a row for each file: its name, size,",
        "times and labels. The table shows the peak memory of the process in MiB, and in parentheses the peak with the",
        "mapped files, which the system can take back at any time. The last column is the growth of the first number",
        f"from {smallest:,} to {largest:,} files.",
        "",
        *table(titles, rows),
        "",
        "Images of 8 pixels, SimCLR with the encoder `conv`, on two cores of an AMD EPYC processor. `search again`",
        f"finds all features in the cache. With {largest:,} files, the run was stopped after its first steps, and the",
        "other commands used the run of the smallest folder. The two processes that decode small files are not",
        "counted.",
        "",
        f"We measured these numbers with `python -m benchmarks.memory_growth` on {found['date']}, with commit",
        f"{found['commit']}. They are in `benchmarks/results/{file.name}`.",
        "",
    ]


def cpu_cells(row: dict[str, Any]) -> list[str]:
    name, pixels = row["row"].split("-")
    ratios = (row["of lightly"], row["of lightly in float32"], row["of float32"])
    return [
        NETWORKS[name],
        pixels,
        str(row["batch"]),
        row["precision"],
        f"{row['views/s']:,.0f}",
        f"{row['share']:.0%}",
        *(f"{value:.2f}" for value in ratios[: 3 if row["precision"] == "bf16" else 1]),
        *([] if row["precision"] == "bf16" else ["", ""]),
    ]


def cells(row: dict[str, Any]) -> list[str]:
    numbers = [f"{row['views/s']:,.0f}", f"{row['ceiling']:,.0f}", f"{row['share']:.0%}", f"{row['MiB']:,.0f}"]
    return [row["method"], *numbers]
