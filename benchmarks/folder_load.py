"""Measure time and memory to list, inspect and decode a large folder of small images, at the first and later starts.

    python -m benchmarks.folder_load --files 200000

The benchmark writes JPEG files of 48 to 96 pixels into 100 folders, which it keeps in --folder for the next time. It
prints a table that also has the time of Pillow alone, one file at a time. Each start is a separate process, so that
peak memory is measured separately. The table shows seconds by the clock and CPU seconds of all threads; on a shared
machine, only CPU seconds are reliable.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

CLASSES = 100
SIZE = 64
Seconds = dict[str, float]
SAMPLE = 5_000  # number of files for the timing of Pillow alone


def make(root: Path, files: int) -> None:
    """Write images of coloured blocks with noise, which compress to about 2 KB, like photographs of that size."""
    generator = np.random.default_rng(0)
    for number in range(files):
        path = root / f"class-{number % CLASSES:02d}" / f"{number:07d}.jpg"
        if path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        width, height = generator.integers(48, 97, 2)
        blocks = generator.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        image = Image.fromarray(blocks).resize((int(width), int(height)), Image.Resampling.BICUBIC)
        noisy = np.asarray(image, np.int16) + generator.integers(-8, 9, (int(height), int(width), 3), dtype=np.int16)
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(path, quality=80)


def start(root: Path) -> dict[str, Any]:
    """Start Twofold on the folder once and return the seconds of each part and the peak memory of the process."""
    from twofold.data.image_formats import extensions
    from twofold.data.load import load_data
    from twofold.data.open import open_source
    from twofold.data.readers.folder import find_image_files

    extensions()  # Pillow loads its formats
    before = peak_mib()
    seconds = {}
    seconds["list"], _ = timed(lambda: find_image_files(root))
    seconds["look"], source = timed(lambda: open_source(root))
    seconds["decode"], data = timed(lambda: load_data(source, image_size=SIZE, channels=3, test_fraction=0.1))
    return {**seconds, "images": len(source), "peak": peak_mib(), "imported": before, "train": len(data.train)}


def pillow(root: Path) -> dict[str, Any]:
    """Time what a simple loader does in each epoch: open, convert and resize one file after another."""
    everything = sorted(root.rglob("*.jpg"))
    files = everything[:: max(1, len(everything) // SAMPLE)]

    def read() -> None:
        for path in files:
            with Image.open(path) as image:
                np.asarray(image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR))

    seconds, _ = timed(read)
    return {"seconds": seconds, "files": len(files)}


def timed(work: Callable[[], Any]) -> tuple[Seconds, Any]:
    began, cpu = time.perf_counter(), sum(os.times()[:4])
    result = work()
    return {"clock": time.perf_counter() - began, "cpu": sum(os.times()[:4]) - cpu}, result


def shown(seconds: Seconds) -> str:
    return f"{seconds['clock']:.1f} / {seconds['cpu']:.1f}"


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def in_a_process(part: str, root: Path, cache: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.folder_load", "--part", part, "--folder", str(root)]
    environment = os.environ | {"TWOFOLD_CACHE": str(cache)}
    answer = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(answer.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=200_000)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir(), "twofold-folder-load"))
    parser.add_argument("--record", type=Path, help="the JSON file to write")
    parser.add_argument("--part", choices=("start", "pillow"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print(json.dumps({"start": start, "pillow": pillow}[options.part](options.folder)))
        return
    root = options.folder / str(options.files)
    made, _ = timed(lambda: make(root, options.files))
    print(f"{options.files:,} JPEG files in {root}, made in {made['clock']:.0f} s")
    cache = Path(tempfile.mkdtemp(prefix="twofold-cache-", dir=options.folder))
    try:
        first, second = (in_a_process("start", root, cache) for _ in range(2))
        (root / "class-00" / "0000000.jpg").touch()
        third = in_a_process("start", root, cache)
        alone = in_a_process("pillow", root, cache)
    finally:
        shutil.rmtree(cache)
    ratio = options.files / alone["files"]
    whole = {name: ratio * seconds for name, seconds in alone["seconds"].items()}
    print(f"{'clock / CPU seconds':28}{'list':>15}{'inspect':>15}{'decode':>15}  peak MiB")
    for title, row in (("first start", first), ("second start", second), ("one file touched", third)):
        times = "".join(f"{shown(row[part]):>15}" for part in ("list", "look", "decode"))
        print(f"{title:28}{times}{row['peak']:10.0f}")
    print(f"{'Pillow, one file at a time':28}{'':30}{shown(whole):>15}  per epoch; from {alone['files']:,} files")
    load = os.getloadavg()[0]
    print(f"Memory after imports: {first['imported']:.0f} MiB. {os.cpu_count()} cores, load {load:.0f}.")
    if options.record:
        rows = {"first": first, "second": second, "touched": third, "pillow": alone}
        about = {"files": options.files, "size": SIZE, "cores": os.cpu_count(), "load": os.getloadavg()[0]}
        options.record.write_text(json.dumps({**about, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
