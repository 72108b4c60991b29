"""Compare crops from whole pictures (`picture_size`) with crops from the middle square, on small photographs.

    python -m benchmarks.crops --sources DATA --record FILE

DATA holds `flowers17/CLASS/*.jpg`. All accuracies are those of the validation part of `benchmarks.folders`: no test
image is read. Costs are measured with one thread; seconds are those of the processor, or of the clock with a GPU.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import twofold
from benchmarks.folders.datasets import Split, split
from benchmarks.folders.rows import measure, store
from twofold.data.load import load_data
from twofold.data.open import open_source
from twofold.display import Display
from twofold.evaluate.encoder import Encoder
from twofold.files import cache_folder
from twofold.runs.weights import load_encoder
from twofold.train.trainer import Trainer
from twofold.verbs.pretrain import configure

COSTS = {  # of a step
    "conv, 48 px, batch 64": {"encoder": "conv", "image_size": 48, "batch_size": 64},
    "resnet18, 96 px, batch 64": {"encoder": "resnet18", "image_size": 96, "batch_size": 64},
}
RECIPE = {  # of about 150 steps, for accuracies
    "method": "simclr", "encoder": "conv", "image_size": 48, "batch_size": 64, "epochs": 11, "optimizer": "adamw",
    "lr": 1e-3, "lr_scaling": "none", "map_points": 0, "test_fraction": 0.0, "device": "cpu",
}  # fmt: skip
CROPS = {"mild": (0.4, 1.0), "strong": (0.2, 1.0), "strongest": (0.08, 1.0)}
PICTURE_SIZES = (0, 96)


def cost(folder: Path, keys: dict[str, Any], picture_size: int, steps: int, device: str) -> dict[str, float]:
    """Seconds of decoding and of a step, and bytes of the training images."""
    settings = {**keys, "picture_size": picture_size, "test_fraction": 0.0, "epochs": 64, "device": device}
    config, source = configure(folder, "simclr", settings)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TWOFOLD_CACHE"] = cache
        start = clock()
        data = load_data(
            source, image_size=keys["image_size"], channels=3, test_fraction=0.0, picture_size=picture_size
        )
        decoding = clock() - start
        on_disk = sum(file.stat().st_size for file in cache_folder().glob("*.u8"))
        trainer = Trainer(config, data, Display(quiet=True))
        trainer.take_step(0)
        seconds = [timed(lambda step=step: trainer.take_step(step)) for step in range(1, steps + 1)]  # type: ignore[misc]
        batch = trainer.loader.batch(0)
        views = [
            timed(lambda: trainer.make_views(batch.images, batch.position, trainer.clock, batch.sizes))
            for _ in range(2 * steps)
        ]
    pictures = data.train.pictures
    return {
        "images": len(data.train),
        "decoding": decoding,
        "step": min(seconds),
        "views": min(views),
        "memory": data.train.images.nbytes + (pictures.nbytes if pictures is not None else 0),
        "on_disk": on_disk,
    }


def timed(function: Any) -> float:
    start = clock()
    function()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return clock() - start


def clock() -> float:
    """Seconds of the processor do not depend on other programs on the machine, but do not contain those of a GPU."""
    return time.perf_counter() if torch.cuda.is_available() else time.process_time()


def gain(divided: Split, picture_size: int, crop_scale: tuple[float, float], work: Path) -> dict[str, float]:
    """Accuracies in per cent after training."""
    run = twofold.pretrain(
        divided.fit,
        out=work / f"run-{time.time_ns()}",
        seed=divided.seed,
        picture_size=picture_size,
        augment__crop_scale=crop_scale,
        **RECIPE,
    )
    network = load_encoder(Path(run.path))
    encoder = Encoder.on_device(network, network.preprocess, torch.device("cpu"))
    fit, score = (encoder.features(store(folder, run.config.image_size)) for folder in (divided.fit, divided.score))
    return measure(divided, {"trained": (fit, score, run.results["seconds"])})["trained"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--steps", type=int, default=3, help="timed steps")
    parser.add_argument("--work", type=Path, default=Path("build/crops"))
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--parts", default="gain,cost")
    parser.add_argument("--device", default="cpu", help="of the costs")
    parser.add_argument("--crops", default=",".join(CROPS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    table: dict[str, Any] = json.loads(given.record.read_text()) if given.record.exists() else {}
    table |= {"torch": torch.__version__, "threads": 1, "recipe": RECIPE, "crops": CROPS}
    if "gain" in given.parts:
        for seed in map(int, given.seeds.split(",")):
            divided = split("flowers17", given.sources, given.work, seed, "validation")
            for name in given.crops.split(","):
                for picture_size in PICTURE_SIZES:
                    key = f"{name}, picture_size={picture_size}"
                    found = gain(divided, picture_size, CROPS[name], given.work)
                    table.setdefault("accuracies", {}).setdefault(key, []).append({"seed": seed, **found})
                    print(seed, key, found, flush=True)
                    given.record.write_text(json.dumps(table, indent=1) + "\n")
    if "cost" in given.parts:
        folder = split("flowers17", given.sources, given.work, 0, "validation").fit
        open_source(folder)  # the index of files is not part of the decoding
        for name, keys in COSTS.items():
            for picture_size in (0, keys["image_size"], 2 * keys["image_size"]):
                found = cost(folder, keys, picture_size, given.steps, given.device)
                table.setdefault("costs", {})[f"{name}, picture_size={picture_size}"] = found
                print(name, picture_size, found, flush=True)
                given.record.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
