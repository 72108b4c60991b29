"""The files that the fuzzer changes: one of each kind, and the function that reads it as a user would.

`inputs_in` writes them into a folder, with a finished run, two stopped runs and a filled cache.
"""

import contextlib
import csv
import gzip
import io
import json
import os
import pickle
import shutil
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

import twofold
from running import stopped_at
from standard_files import cifar10_contents, mnist_contents
from torture import mutate
from torture.mutate import Mutator
from twofold.data.decode import decode_image, read_header
from twofold.data.decode_options import Unreadable
from twofold.data.image_formats import formats
from twofold.data.load import load_data
from twofold.data.open import open_source
from twofold.data.readers.folder import read_class_list
from twofold.data.store import ImageStore
from twofold.display import Display
from twofold.errors import Interrupted, TwofoldError
from twofold.evaluate.encoder import open_run_encoder
from twofold.methods.relations import group_numbers
from twofold.models import build_encoder
from twofold.models.adapter import Adapter
from twofold.report.compare import render_comparison
from twofold.report.page import render
from twofold.runs.checkpoint import MANIFEST
from twofold.runs.classifier_file import labelled_images, save_classifier
from twofold.runs.folder import RunFolder
from twofold.runs.images_record import read_trained_images
from twofold.runs.initial_weights import encoder_settings, read_weights
from twofold.runs.provenance import open_run_source
from twofold.runs.run import Run, config_of
from twofold.runs.weights import adapter_file, load_encoder, read_encoder, save_adapter

RNG = np.random.default_rng(0)
SIZE = 8
SMALL: dict[str, Any] = {"image_size": SIZE, "encoder": "conv", "batch_size": 8, "projector": "16,8", "device": "cpu"}
SMALL |= {"checkpoint.seconds": 0.0, "checkpoint.keep": 2, "map_points": 10, "augment.jitter": 0.0, "seed": 1}


class Input(NamedTuple):
    """A file, and how it is changed and read."""

    name: str
    path: Path
    mutate: Mutator
    read: Callable[[], Any]
    restores: Path | None = None  # a folder that reading changes, and that is restored before each attempt


def picture(size: tuple[int, int] = (12, 10)) -> Image.Image:
    return Image.fromarray(RNG.integers(0, 256, (*size, 3), dtype=np.uint8))


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def load(data: Any, **options: Any) -> Any:
    """Find and decode images, as every verb does."""
    source = open_source(data, **options)
    channels = source.train.channels
    return load_data(source, image_size=SIZE, channels=channels, test_fraction=0.2, unlabelled_fraction=0.1)


def inputs_in(root: Path) -> list[Input]:
    os.environ["TWOFOLD_CACHE"] = str(root / "cache")
    makers = (images, arrays, standard_sets, lists, tars, cached, features, run_files, checkpoints, weights)
    return [found for maker in makers for found in maker(root / maker.__name__)]


def written(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def image_folder(root: Path, count: int = 8) -> Path:
    for label in ("cat", "dog"):
        for number in range(count):
            written(root / label / f"{number}.png", saved(picture(), "PNG"))
    return root


def images(root: Path) -> Iterator[Input]:
    variants: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in formats() if name != "DIB"}
    variants |= {
        "progressive JPEG": ("JPEG", {"progressive": True}),
        "interlaced PNG": ("PNG", {"interlace": True}),
        "deflated TIFF": ("TIFF", {"compression": "tiff_adobe_deflate"}),
    }
    exif = Image.Exif()
    exif[0x0112] = 6
    for name, (kind, options) in variants.items():
        rotated = {"exif": exif} if kind in ("JPEG", "PNG", "WEBP") else {}
        with contextlib.suppress(OSError, KeyError):  # a format that the installed Pillow reads but does not write
            path = written(root / name / "image", saved(picture(), kind, **options, **rotated))
            yield Input(
                f"image {name}", path, mutate.by_png if kind == "PNG" else mutate.by_bytes, partial(decode, path)
            )


def decode(path: Path) -> None:
    for attempt in (
        read_header,
        partial(decode_image, size=SIZE, channels=3),
        partial(decode_image, size=4, channels=1),
    ):
        with contextlib.suppress(Unreadable):
            attempt(path)


def arrays(root: Path) -> Iterator[Input]:
    pixels, labels = RNG.integers(0, 256, (6, SIZE, SIZE), dtype=np.uint8), np.arange(6) % 2
    root.mkdir()
    np.save(root / "a.npy", pixels)
    np.save(root / "f.npy", pixels.astype(np.float32)[..., None].repeat(3, 3) / 255)
    np.savez(root / "plain.npz", images=pixels, labels=labels, x_test=pixels, y_test=labels)
    np.savez_compressed(root / "packed.npz", x=pixels, y=labels.astype("U9"))
    for name in ("a.npy", "f.npy", "plain.npz", "packed.npz"):
        changes = mutate.by_npy if name.endswith("y") else mutate.by_zip
        yield Input(f"array {name}", root / name, changes, partial(load, root / name))


def standard_sets(root: Path) -> Iterator[Input]:
    def files(name: str, contents: dict[str, bytes], chosen: tuple[str, ...], changes: Mutator) -> Iterator[Input]:
        for file, content in contents.items():
            written(root / name / file, content)
        for file in chosen:
            yield Input(f"{name} {file}", root / name / file, changes, partial(load, name, data_dir=root / name))

    raw = mnist_contents()
    yield from files("mnist", raw, ("train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"), mutate.by_sizes)
    for part in ("train-labels-idx1-ubyte",):
        raw[f"{part}.gz"] = gzip.compress(raw.pop(part))
    raw = {f"FashionMNIST/raw/{file}": content for file, content in raw.items()}
    packed = "FashionMNIST/raw/train-labels-idx1-ubyte.gz"
    yield from files("fashion-mnist", raw, (packed,), mutate.by_bytes)
    cifar = {name: pickle.dumps(part, protocol=2) for name, part in cifar10_contents().items()}
    yield from files("cifar10", cifar, ("data_batch_2", "batches.meta"), mutate.by_bytes)
    stl = {f"{part}_X.bin": RNG.bytes(3 * 27648) for part in ("train", "test", "unlabeled")}
    stl |= {"train_y.bin": bytes([1, 2, 2]), "test_y.bin": bytes([2, 1, 1]), "class_names.txt": b"cat\ndog\n"}
    yield from files("stl10", stl, ("train_y.bin", "class_names.txt", "test_X.bin"), mutate.by_bytes)
    tiny = root / "sets" / "tiny-imagenet-200"
    image_folder(tiny / "train", 3)
    for number in range(3):
        written(tiny / "val" / "images" / f"{number}.JPEG", saved(picture(), "JPEG"))
    listed = written(tiny / "val" / "val_annotations.txt", b"0.JPEG\tcat\t0\t0\n1.JPEG\tdog\t0\n2.JPEG\tcat\n")
    yield Input("val_annotations.txt", listed, mutate.by_bytes, partial(load, "tiny-imagenet", data_dir=root / "sets"))


def lists(root: Path) -> Iterator[Input]:
    folder = image_folder(root / "photos", 3)
    names = [f"photos/{path.relative_to(folder)}" for path in sorted(folder.rglob("*.png"))]
    rows = [
        f"{name},{name[7:10]},{number // 2},{('train', 'test')[number % 3 == 2]}" for number, name in enumerate(names)
    ]
    contents = {
        "list.csv": "path,label,group,split\n" + "\n".join(rows) + "\n",
        "semicolons.csv": "\n".join(row.replace(",", ";") for row in rows),
        "list.tsv": "image\tclass\n" + "\n".join(f"{name}\t{number % 2}" for number, name in enumerate(names)),
        "list.txt": "\n".join(f"{name} {number % 2}" for number, name in enumerate(names)),
    }
    for name, content in contents.items():
        path = written(root / name, content.encode())
        yield Input(f"list {name}", path, mutate.by_table, partial(load, path))
    wanted = written(root / "classes.txt", b"cat\ndog\n")
    yield Input("class list", wanted, mutate.by_table, partial(load, folder, class_list=wanted))
    yield Input("class list alone", wanted, mutate.by_bytes, partial(read_class_list, wanted))
    pairs = written(root / "groups.csv", "\n".join(f"{row.split(',')[0][7:]},{row[-1]}" for row in rows).encode())
    pixels = torch.zeros(6, 3, SIZE, SIZE, dtype=torch.uint8)
    store = ImageStore(pixels, None, torch.arange(6), tuple(name[7:] for name in names))
    graph = twofold.config.Graph(source=str(pairs))
    yield Input("table of groups", pairs, mutate.by_table, partial(group_numbers, graph, store))
    images = [[{"file": name[7:], "index": number}] for number, name in enumerate(names)]
    found = written(root / "groups.json", json.dumps([images[0] + images[1], images[2] + images[3]]).encode())
    graph = twofold.config.Graph(source=str(found))
    yield Input("JSON of groups", found, mutate.by_json, partial(group_numbers, graph, store))


def tars(root: Path) -> Iterator[Input]:
    for name, form in (("pax", tarfile.PAX_FORMAT), ("gnu", tarfile.GNU_FORMAT)):
        file = io.BytesIO()
        members = {f"{'deep/' * 30}a.png": saved(picture(), "PNG"), "b.jpg": saved(picture(), "JPEG"), "b.cls": b"3"}
        members |= {"c.png": members["b.jpg"], "c.json": b'{"label": "dog"}', "deep/" * 30 + "a.cls": b"4"}
        with tarfile.open(fileobj=file, mode="w:", format=form) as tar:
            for member_name, content in members.items():
                member = tarfile.TarInfo(member_name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        path = written(root / f"{name}.tar", file.getvalue())
        yield Input(f"tar {name}", path, mutate.by_tar, partial(load, path))


def cached(root: Path) -> Iterator[Input]:
    folder, cache = image_folder(root / "photos", 3), root / "cache"

    def read() -> None:
        with patch.dict(os.environ, {"TWOFOLD_CACHE": str(cache)}):
            source = open_source(folder)
            load_data(source, image_size=SIZE, channels=3, test_fraction=0.3, picture_size=12)
            load_data(source, image_size=SIZE, channels=3, test_fraction=0.4, picture_size=12)  # reuses rows

    with patch.dict(os.environ, {"TWOFOLD_CACHE": str(cache)}):
        load_data(open_source(folder), image_size=SIZE, channels=3, test_fraction=0.3, picture_size=12)
    for path in sorted(file for file in cache.rglob("*") if file.is_file()):
        changes = {".json": mutate.by_json, ".npz": mutate.by_zip}.get(path.suffix, mutate.by_bytes)
        kind = "pictures" if ".12-" in path.name else "squares" if path.suffix != ".npz" else "index"
        yield Input(f"cached {kind} {path.suffix}", path, changes, read, restores=cache)


def features(root: Path) -> Iterator[Input]:
    root.mkdir()
    rows = RNG.normal(size=(12, 5)).astype(np.float32)
    np.save(root / "f.npy", rows)
    np.savez(root / "f.npz", features=rows, index=np.arange(12))
    table = io.StringIO()
    csv.writer(table).writerows(
        [["index", *(f"f{k}" for k in range(5))], *([n, *row] for n, row in enumerate(rows.tolist()))]
    )
    written(root / "f.csv", table.getvalue().encode())
    changes = {".npy": mutate.by_npy, ".npz": mutate.by_zip, ".csv": mutate.by_table}
    for path in sorted(root.iterdir()):
        yield Input(f"features {path.suffix}", path, changes[path.suffix], partial(twofold.diagnose, path))


def finished_run(root: Path) -> Path:
    data, run = image_folder(root / "photos"), root / "run"
    if not run.exists():
        twofold.pretrain({"data": str(data), **SMALL, "epochs": 2}, method="frossl", out=run)
        (run / "log.txt").write_text("")
        twofold.pretrain({"data": str(data), **SMALL, "epochs": 1}, method="frossl", out=root / "other")
    return run


def run_files(root: Path) -> Iterator[Input]:
    run = finished_run(root)
    changes = {".json": mutate.by_json, ".jsonl": mutate.by_lines, ".npz": mutate.by_zip}

    def pages() -> None:
        folder = RunFolder.open(run)
        for attempt in (render, lambda folder: render_comparison([folder, RunFolder.open(root / "other")])):
            with contextlib.suppress(TwofoldError):
                attempt(folder)

    def properties() -> None:
        for name in ("config", "metrics", "spectrum", "results"):
            with contextlib.suppress(TwofoldError):
                getattr(Run(run), name)

    def evaluations() -> None:
        for attempt in (
            lambda: open_run_source(run, Run(run).config, print_nothing),
            lambda: read_trained_images(run),
            lambda: open_run_encoder(run, config_of(run), None, adapter=True, views=1, say=print_nothing),
        ):
            with contextlib.suppress(TwofoldError):
                attempt()

    for path in sorted(file for file in run.iterdir() if file.suffix in changes):
        for name, read in (("pages", pages), ("properties", properties)):
            yield Input(f"run {path.name}, {name}", path, changes[path.suffix], read)
    for name in ("config.json", "images.npz"):
        yield Input(f"run {name}, evaluations", run / name, changes[Path(name).suffix], evaluations)


def print_nothing(_: str) -> None:
    pass


def stopped_run(root: Path, method: str, **overrides: Any) -> Path:
    data, run = image_folder(root / "photos"), root / method / "run"
    settings = {"data": str(data), **SMALL, "epochs": 4, **overrides}
    settings = {key: value for key, value in settings.items() if key != "projector" or method == "frossl"}
    with stopped_at(2), contextlib.suppress(Interrupted):
        twofold.pretrain(settings, method=method, out=run)
    return run


def checkpoints(root: Path) -> Iterator[Input]:
    frossl = stopped_run(root, "frossl")
    rows = stopped_run(root, "s-diet", **{"head.path": str(root / "s-diet" / "run" / ".." / "rows")})
    # by the format of the file, or bytes
    kinds = {".json": mutate.by_json, ".jsonl": mutate.by_lines, ".npz": mutate.by_zip}
    kinds[".safetensors"] = mutate.by_safetensors
    without_checksums = root / "frossl" / "old"
    shutil.copytree(frossl, without_checksums)
    for manifest in without_checksums.glob(f"checkpoints/*/{MANIFEST}"):
        manifest.unlink()
        state = manifest.with_name("state.json")
        state.write_text(state.read_text().replace('"format": 3', '"format": 2', 1))
    runs = (frossl, without_checksums, rows)
    newest = [run / "checkpoints" / (run / "checkpoints" / "latest").read_text().strip() for run in runs]
    chosen = [
        frossl / "config.json",
        frossl / "metrics.jsonl",
        frossl / "images.npz",
        frossl / "checkpoints" / "latest",
    ]
    chosen += [path for folder in newest for path in sorted(folder.iterdir())]
    chosen += sorted(path for path in (rows.parent / "rows").iterdir())
    for path in chosen:
        run = next((run for run in (frossl, without_checksums) if path.is_relative_to(run)), rows)
        name = f"{run.parent.name}{' of format 2' if run == without_checksums else ''} {path.name}"
        changes = kinds.get(path.suffix, mutate.by_bytes)
        yield Input(f"resume {name}", path, changes, partial(resume_one_step, run), restores=run.parent)


def resume_one_step(run: Path) -> None:
    with stopped_at(3), contextlib.suppress(Interrupted):
        twofold.resume(run)


def weights(root: Path) -> Iterator[Input]:
    run = finished_run(root.parent / "run_files")
    copy = root / "run"
    shutil.copytree(run, copy)
    encoder = load_encoder(copy)
    width = 64
    with torch.no_grad():
        width = encoder(torch.zeros(2, 3, SIZE, SIZE)).shape[1]
    description = {"variant": "within", "settings": {"shrinkage": 0.5}}
    adapter = Adapter(torch.zeros(width), torch.eye(width)[:4].contiguous())
    save_adapter(adapter_file(copy / "encoder.safetensors"), adapter, encoder.state_dict(), description)
    loaded = partial(load_encoder, copy)
    classifier, photos = root / "classifier.safetensors", image_folder(root / "photos", 2)
    save_classifier(
        classifier,
        encoder.state_dict(),
        None,
        {"weight": torch.ones(2, width), "bias": torch.zeros(2)},
        labelled_images(torch.rand(4, width), torch.tensor([0, 1, 0, 1]), ["a", "b", "c", "d"]),
        {**read_encoder(copy)[1], "classes": ["cat", "dog"]},
    )
    yield Input("classifier", classifier, mutate.by_safetensors, partial(twofold.predict, classifier, photos))
    yield Input("encoder.safetensors", copy / "encoder.safetensors", mutate.by_safetensors, loaded)
    yield Input("adapter.safetensors", copy / "adapter.safetensors", mutate.by_safetensors, loaded)
    alone = written(root / "alone" / "encoder.safetensors", (copy / "encoder.safetensors").read_bytes())
    yield Input("encoder alone", alone, mutate.by_safetensors, lambda: (config_of(alone.parent), load_encoder(alone)))
    save_file(
        build_encoder("conv", channels=3, stem="small", image_size=SIZE).state_dict(), root / "foreign.safetensors"
    )
    foreign = root / "foreign.safetensors"
    yield Input("init", foreign, mutate.by_safetensors, lambda: initial(foreign))
    yield Input("init from an encoder", copy / "encoder.safetensors", mutate.by_safetensors, lambda: initial(copy))
    measure = partial(twofold.diagnose, foreign, photos, encoder="conv", image_size=SIZE, display=Display(quiet=True))
    yield Input("diagnose .safetensors", foreign, mutate.by_safetensors, measure)


def initial(source: Path) -> None:
    encoder_settings(str(source))
    read_weights(str(source), channels=3, image_size=SIZE)
