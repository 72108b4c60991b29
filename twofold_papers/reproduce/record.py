"""Records: a finished run as a small JSON file with its configuration, numbers, machine and commit.

The configuration determines the name of a record: data, method, and settings that are not defaults, as in
cifar10-frossl-30-seed1.
"""

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from os.path import basename
from pathlib import Path
from statistics import median
from typing import Any

import torch

from twofold.config import flat, resolve
from twofold.data.open import defaults_of
from twofold.evaluate.metrics import dimensions_above, shannon_entropy
from twofold.files import write_atomically
from twofold.keys import shown
from twofold.methods import CATALOG, schema
from twofold.methods.catalog.common import continued_recipe
from twofold.runs.folder import RunFolder
from twofold.train.log_points import log_spaced
from twofold_papers.reproduce.maps import kept_map

Record = dict[str, Any]

# Keys with paths. Records keep only the last part of a path, because folders differ between machines.
PATHS = ("data", "data_dir", "graph.source", "class_list", "head.path", "init")
WITH_PATHS = ("command", "load")
# Settings that the name contains in another form, or that do not change the numbers of a run.
NOT_IN_NAME = {"data", "data_dir", "download", "method", "epochs", "seed", "device", "compile"}
NOT_IN_NAME |= {"log", "map_points", "head.path"}
LONGEST_NAME = 200  # file systems allow 255 bytes, and endings such as .error.txt follow
RANKS = 16  # number of eigenvalues in a record, log-spaced; the 14th, for FroSSL's figures, is always added


def record_name(config: Mapping[str, Any]) -> str:
    values = config["values"]
    asked = {key for key, layer in config["origin"].items() if layer == "user" and not key.startswith("checkpoint.")}
    words = [data_word(values["data"]), values["method"]]
    words += [str(values["epochs"])] * ("epochs" in asked)
    words += [f"{key}-{values[key]}" for key in sorted(asked - NOT_IN_NAME)]
    words += [f"seed{values['seed']}"] * ("seed" in asked)
    name = re.sub(r"[^\w.]+", "-", "-".join(words)).strip("-")
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 9]}-{blake2b(name.encode(), digest_size=4).hexdigest()}"


def data_word(data: str) -> str:
    """The name of a data set; for a path, its last part and a hash, because many folders are named `images`."""
    return f"{Path(data).name}-{blake2b(data.encode(), digest_size=4).hexdigest()}" if os.sep in data else data


def record(run: Path, machine: str, commit: str) -> Record:
    """The record of a finished run, without the results that contain its path."""
    results = RunFolder(run).results() or {}
    return recorded(run, {name: results[name] for name in results if name not in WITH_PATHS}, machine, commit)


def record_of_failure(run: Path, reason: str, results: Mapping[str, Any], machine: str, commit: str) -> Record:
    """The record of a failed run, with what it logged and the reason. `results` describes the machine."""
    return recorded(run, {"table": [], "memory": None, **results}, machine, commit) | {"failed": reason}


def recorded(run: Path, results: dict[str, Any], machine: str, commit: str) -> Record:
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    for name in PATHS:
        if config["values"].get(name) is not None:
            config["values"][name] = (data_word if name == "data" else basename)(config["values"][name])
    metrics, timing = RunFolder(run).read("metrics.jsonl"), RunFolder(run).read("timing.jsonl")
    results.setdefault("seconds", timing[-1]["seconds"] if timing else 0.0)
    spectrum = [line for line in RunFolder(run).read("spectrum.jsonl") if line["of"] == "embeddings"]
    return {
        "machine": machine or results["device"],
        "commit": commit,
        "config": config,
        "results": results,
        "online_accuracy": {line["epoch"]: line["online_accuracy"] for line in metrics if "online_accuracy" in line},
        "last": metrics[-1] if metrics else {},  # includes the effective ranks
        "spectrum": spectrum_summary(spectrum),
        "map": kept_map(run),
        "steady_images_per_second": steady_rate(timing) if timing else None,
        "seconds": wall_clock(timing, results["seconds"]),
    }


def spectrum_summary(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The spectrum of the embeddings' covariance by step: some eigenvalues, the entropy and the number above 1 %."""
    if not lines:
        return {}
    spectra = [torch.tensor(line["eigenvalues"]) for line in lines]
    ranks = sorted({*log_spaced(len(lines[0]["eigenvalues"]), RANKS), min(14, len(lines[0]["eigenvalues"]))})
    return {
        "dimension": len(lines[0]["eigenvalues"]),
        "step": [line["step"] for line in lines],
        "entropy": [short(shannon_entropy(spectrum)) for spectrum in spectra],
        "above_a_hundredth": [dimensions_above(spectrum) for spectrum in spectra],
        "eigenvalues": {str(rank): [short(line["eigenvalues"][rank - 1]) for line in lines] for rank in ranks},
    }


def short(value: float) -> float:
    return float(f"{value:.4g}")


def steady_rate(timing: list[dict[str, float]]) -> float:
    """Images per second: the median over the second half of the run, without compilation and evaluation."""
    half = timing[-1]["step"] / 2
    return median(line["images_per_second"] for line in timing if line["step"] > half)


def wall_clock(timing: list[dict[str, float]], last: float) -> float:
    """The total seconds of a run. The clock restarts when a run is resumed, so each decrease ends one part."""
    clock = [*(line["seconds"] for line in timing), last]
    return sum(before for before, after in pairwise(clock) if after < before) + last


def write_record(folder: Path, name: str, values: Record) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    text = json.dumps(values, indent=1)
    # Lists are on one line; otherwise a spectrum would take a thousand lines.
    text = re.sub(r"\[[^\[\]{}]*\]", lambda found: re.sub(r"\s+", " ", found[0]), text)
    write_atomically(path, text + "\n")
    return path


def read_records(*folders: Path) -> dict[str, Record]:
    """The records by name, sorted. If a name is in several folders, the last folder counts.

    Records made with other defaults than the current ones are left out: they are of other runs than a table needs.
    """
    paths = {path.stem: path for folder in folders for path in folder.glob("*.json")}
    found = {name: json.loads(paths[name].read_text(encoding="utf-8")) for name in sorted(paths)}
    return {name: values for name, values in found.items() if has_todays_defaults(values)}


def has_todays_defaults(record: Record) -> bool:
    """Whether all settings that the run left at their defaults have the same values now."""
    values, origin = record["config"]["values"], record["config"]["origin"]
    if values["method"] not in CATALOG or any(key not in schema(values["method"]) for key in origin):
        return False
    keys = schema(values["method"])
    asked = {key: values[key] for key, layer in origin.items() if layer in ("user", "chosen", "init")}
    recipe = CATALOG[values["method"]].recipe_for(resolve(keys, {"user": asked}).parameters)
    suited = {key: value for key, value in defaults_of(values["data"]).items() if key in keys}
    continued = continued_recipe(CATALOG[values["method"]]) if values.get("recipe") == "continued" else {}
    today = flat(resolve(keys, {"method": recipe, "data": suited, "recipe": continued, "user": asked}))
    return all(shown(today[key]) == shown(value) for key, value in values.items() if key in today and key not in PATHS)


def head_commit() -> str:
    """The short hash of the current commit; empty if the package is not in a repository."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            cwd=Path(__file__).parent, capture_output=True, text=True, check=False,
        )  # fmt: skip
    except OSError:
        return ""
    return found.stdout.strip()
