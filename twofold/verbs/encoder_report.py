"""`report` and `compare` for encoders without a run: what a page shows that needs no training history.

The records are written to a folder in the format of a run, from which the pages are made: accuracies and baselines, the
spectrum with its verdict, the map and the nearest neighbours.
"""

import dataclasses
import json
import platform
import re
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from twofold.checksums import seal
from twofold.data.load import read_data
from twofold.data.open import open_to_use
from twofold.data.source import Data
from twofold.device import device_name
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.evaluate.encoder import is_encoder, refuse_other
from twofold.evaluate.foreign_encoders import is_written_by_twofold
from twofold.evaluate.handmade import features_without_training
from twofold.evaluate.opened import Opened, What, folder_of, name_of_encoder, open_any
from twofold.evaluate.probes import labelled_splits, measure_accuracies
from twofold.evaluate.spectrum import MEANINGS
from twofold.files import refuse_unwritable, write_atomically, writing
from twofold.report import gallery, pictures
from twofold.report.compare import write_comparison
from twofold.report.page import render
from twofold.runs.folder import RunFolder
from twofold.runs.run import is_encoder_folder
from twofold.verbs.diagnose import Diagnosed, describe_features
from twofold.verbs.probing import separate_adapter, untrained_network
from twofold.version import __version__

MAP_POINTS = 1000
SETTINGS = ("data", "encoder", "stem", "image_size", "channels", "test_fraction")  # of the configuration


def is_without_run(what: What) -> bool:
    """Return whether this is an encoder, and no run; a path that does not exist counts as a run."""
    folder = folder_of(what)
    return is_encoder(what) if folder is None else is_encoder_folder(folder)


def report_encoder(
    what: What,
    data: Any,
    out: Path,
    display: Display,
    *,
    module: str | nn.Module | None = None,
    image_size: int | None = None,
    points: int = MAP_POINTS,
) -> Path:
    """Write a page about an encoder on these images to the file `out`, and return its path."""
    refuse_unwritable(out)
    with tempfile.TemporaryDirectory() as place:
        folder = record_encoder(Path(place), what, data, display, module, image_size, points)
        page = render(folder)
    with writing(out):
        write_atomically(out, page)
    return out


def compare_any(
    runs: Sequence[str | Path], data: Any, out: Path, display: Display, *, architecture: str | None = None
) -> Path:
    """Write a page that compares runs and other encoders.

    Encoders without a run are measured on `data`; by default, on the images of the first run. `architecture` is that of
    all .safetensors files that do not name theirs.
    """
    refuse_unwritable(out)
    histories = [RunFolder.open(Path(run)) for run in runs if not is_without_run(run)]
    values = histories[0].config_record()["values"] if histories else {}
    with ExitStack() as stack:
        folders = []
        for run in runs:
            if not is_without_run(run):
                folders.append(RunFolder(Path(run)))
                continue
            if data is None and not histories:
                raise TwofoldError(f"{run} is an encoder without images of its own: give --data DATA")
            place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            images = values.get("data") if data is None else data
            module = architecture if is_unnamed(run) else None
            folders.append(record_encoder(place, run, images, display, module, None, MAP_POINTS, of_run=values))
        return write_comparison(folders, out)


def is_unnamed(what: str | Path) -> bool:
    """Return whether this is a .safetensors file that does not name its network."""
    path = Path(what).expanduser()
    return path.suffix == ".safetensors" and path.is_file() and not is_written_by_twofold(path)


def record_encoder(
    place: Path,
    what: What,
    data: Any,
    display: Display,
    module: str | nn.Module | None,
    image_size: int | None,
    points: int,
    of_run: dict[str, Any] | None = None,
) -> RunFolder:
    """Measure an encoder and write the records of a page into a folder below `place`.

    `of_run` has the keys of the run whose images `data` are, so that the same classes are read.
    """
    started = time.monotonic()
    opened = open_any(what, data, display, module=module, image_size=image_size)
    if data is None and opened.run is None:
        raise TwofoldError(f"{opened.name} is an encoder without images of its own: give DATA, the images")
    shared = {key: of_run[key] for key in ("test_fraction", "data_dir", "class_list") if of_run and key in of_run}
    config = dataclasses.replace(opened.config, **shared)
    source = open_to_use(config.data if data is None else data, of_run or vars(config))
    read = read_data(config, source, display)
    measured = _measure(opened, module, read, display)
    folder = RunFolder(place / re.sub(r"[^\w.:-]", "-", Path(opened.name).name))
    folder.path.mkdir()
    mean, std = opened.preprocess.mean.tolist(), opened.preprocess.std.tolist()
    values = {"method": opened.name, "seed": None} | {key: getattr(config, key) for key in SETTINGS}
    values |= {"data": source.location, "mean": mean, "std": std}
    folder.write("config.json", json.dumps(seal({"values": values, "origin": {}, "derived": {}})))
    if measured["eigenvalues"]:
        record = {"step": 0, "epoch": 0, "of": "features", "eigenvalues": measured["eigenvalues"]}
        folder.append("spectrum.jsonl", record)
    results = measured | {
        "of": "encoder",
        "train_images": len(read.train),
        "test_images": len(read.test) if read.test is not None else 0,
        "seconds": time.monotonic() - started,
        "command": None,
        "device": device_name(opened.encoder.device),
        "versions": {"twofold": __version__, "torch": torch.__version__, "python": platform.python_version()},
    }
    folder.write("results.json", json.dumps(seal(results)))
    gallery.write_pictures(folder, pictures.gather_pictures(config, read, opened.encoder, [], points, display))
    return folder


def _measure(opened: Opened, module: str | nn.Module | None, read: Data, display: Display) -> dict[str, Any]:
    """Return the spectrum and the verdict and, with labels, the accuracies of the encoder and of its baselines."""
    encoder, splits = opened.encoder, labelled_splits(read)
    train = read.train if splits is None else splits.train
    with display.stage("computing features", len(train)) as stage:
        features = encoder.features(train.place(encoder.device), progress=stage)
    found = describe_features(Diagnosed(features), display) | {"meanings": MEANINGS, "table": []}
    found["duplicates"] = None if found["duplicates"] is None else len(found["duplicates"])
    if splits is None or not found["eigenvalues"]:
        return found
    pairs: dict[str, tuple[Tensor, Tensor]] = {"trained": (features, encoder.features(splits.test))}
    plain, _ = separate_adapter(encoder.network)
    others = {} if plain is encoder.network else {"without adapter": plain}
    for name, network in (others | untrained_network(opened, module, read.train)).items():
        other = dataclasses.replace(encoder, network=network.to(encoder.device))
        with display.stage(f"computing features ({name})", None):
            pairs[name] = other.features(splits.train), other.features(splits.test)
    pairs |= features_without_training(splits.train, splits.test)
    with display.stage("training classifiers", None):
        rows = measure_accuracies(pairs, splits.train_labels, splits.test_labels, classes=len(splits.classes))
    return found | {"table": [dataclasses.asdict(each.row) for each in rows]}


def default_page(what: What) -> Path:
    """Return the file of the page of an encoder that is written if the user names none."""
    refuse_other(what)
    folder = folder_of(what)
    if folder is not None:
        return folder / "report.html"
    raise TwofoldError(f"{name_of_encoder(what)} is not in a run folder: pass --out FILE, the page to write")
