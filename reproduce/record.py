"""Keep a finished run as one small JSON record: its configuration, numbers, machine and commit.

python reproduce/record.py RUN [RUN ...] --to reproduce/records [--machine "two CPU cores"]
"""

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

PATHS = ("data", "data_dir")  # where files lay on one machine says nothing to a reader


def record(run: Path, machine: str, commit: str) -> dict[str, Any]:
    config = json.loads((run / "config.json").read_text())
    config["values"] = {name: Path(value).name if name in PATHS else value for name, value in config["values"].items()}
    results = json.loads((run / "results.json").read_text())
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    timing = [json.loads(line) for line in (run / "timing.jsonl").read_text().splitlines()]
    online = {line["epoch"]: line["online_accuracy"] for line in metrics if "online_accuracy" in line}
    del results["command"]
    return {
        "machine": machine or results["device"],
        "commit": commit,
        "config": config,
        "results": results,
        "online_accuracy": online,
        "last": metrics[-1],
        "images_per_second": timing[-1]["images_per_second"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--machine", default="")
    parser.add_argument("--commit", default="")
    arguments = parser.parse_args()
    arguments.to.mkdir(parents=True, exist_ok=True)
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    for run in arguments.runs:
        values = record(run, arguments.machine, arguments.commit or head.stdout.strip())
        path = arguments.to / f"{run.name}.json"
        path.write_text(json.dumps(values, indent=1) + "\n")
        print(path)


if __name__ == "__main__":
    main()
