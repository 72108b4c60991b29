"""Keep finished runs as small JSON records: configuration, numbers, machine and commit.

python reproduce/record.py RUN [RUN ...] [--machine "two CPU cores"]

A record's name follows from the run's configuration: data, method, and what was asked for beyond their defaults, as in
cifar10-frossl-30-seed1. Recording a run of the same name again replaces the record. Then: python docs/generate.py
"""

import argparse
import json
import re
import subprocess
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
PATHS = ("data", "data_dir", "graph.source")  # where files lay on one machine says nothing to a reader
# What a run was asked for that its name says in its own way, or that is not meant to change its numbers.
NOT_IN_NAME = {"data", "data_dir", "download", "method", "epochs", "seed", "device", "compile"}


def record_name(config: dict[str, Any]) -> str:
    values = config["values"]
    asked = {key for key, layer in config["origin"].items() if layer == "user" and not key.startswith("checkpoint.")}
    words = [Path(values["data"]).name, values["method"]]
    words += [str(values["epochs"])] * ("epochs" in asked)
    words += [f"{key}-{values[key]}" for key in sorted(asked - NOT_IN_NAME)]
    words += [f"seed{values['seed']}"] * ("seed" in asked)
    return re.sub(r"[^\w.]+", "-", "-".join(words)).strip("-")


def steady_rate(timing: list[dict[str, float]]) -> float:
    """Images per second: the median over the last half of the run, past compilation, whatever evaluation took."""
    half = timing[-1]["step"] / 2
    return median(line["images_per_second"] for line in timing if line["step"] > half)


def wall_clock(timing: list[dict[str, float]], last: float) -> float:
    """Seconds of all parts of a run: its clock begins anew when it is resumed, so every fall ends a part."""
    clock = [*(line["seconds"] for line in timing), last]
    return sum(before for before, after in pairwise(clock) if after < before) + last


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def record(run: Path, machine: str, commit: str) -> dict[str, Any]:
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    config["values"] = {name: Path(value).name if name in PATHS else value for name, value in config["values"].items()}
    results = json.loads((run / "results.json").read_text(encoding="utf-8"))
    metrics, timing = lines_of(run / "metrics.jsonl"), lines_of(run / "timing.jsonl")
    del results["command"]
    return {
        "machine": machine or results["device"],
        "commit": commit,
        "config": config,
        "results": results,
        "online_accuracy": {line["epoch"]: line["online_accuracy"] for line in metrics if "online_accuracy" in line},
        "last": metrics[-1],  # with the effective ranks at the end
        "steady_images_per_second": steady_rate(timing),
        "seconds": wall_clock(timing, results["seconds"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--to", type=Path, default=HERE / "records")
    parser.add_argument("--machine", default="", help="where the runs were made, in words; else the device's name")
    parser.add_argument("--commit", default="", help="that the runs were made with; else the one that is checked out")
    arguments = parser.parse_args()
    head = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False
    )
    made: dict[str, tuple[Path, dict[str, Any]]] = {}
    for run in arguments.runs:
        if not (run / "results.json").exists():
            parser.error(f"{run} is not a finished run: it has no results.json")
        values = record(run, arguments.machine, arguments.commit or head.stdout.strip())
        name = record_name(values["config"])
        if name in made:
            parser.error(f"{made[name][0]} and {run} have one configuration, and would both be {name}.json")
        made[name] = run, values
    arguments.to.mkdir(parents=True, exist_ok=True)
    for name, (_, values) in made.items():
        path = arguments.to / f"{name}.json"
        path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
