"""Measure time and peak memory to decode one large image.

    python -m benchmarks.large_images --megapixels 168

Each image is decoded in a process of its own. The peak memory is that of the whole process, of which Python, NumPy and
Pillow take some 40 MB.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from benchmarks.results import Table, keep

SIZE = 224
DECODE = r"""
import json, re, sys, time
from pathlib import Path
from twofold.data.decode import decode_image
from twofold.data.decode_options import DecodeOptions
since = time.process_time()
decode_image(Path(sys.argv[1]), int(sys.argv[2]), 3, DecodeOptions(pixel_limit=int(sys.argv[3])))
seconds = time.process_time() - since
# getrusage would give the peak of the parent if that is higher.
peak = int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024
print(json.dumps([seconds, peak]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megapixels", type=int, default=168)
    parser.add_argument("--record", type=Path, help="file for the results")
    options = parser.parse_args()
    width = round((options.megapixels * 1e6 * 7 / 6) ** 0.5)
    height = round(options.megapixels * 1e6 / width)
    table = Table("image", "CPU seconds", "peak MiB")
    with tempfile.TemporaryDirectory() as folder:
        colour = Image.linear_gradient("L").resize((width, height)).convert("RGB")
        kinds = {
            "JPEG": ("jpg", colour, {}),
            "progressive JPEG": ("jpg", colour, {"progressive": True}),
            "grey PNG": ("png", colour.convert("L"), {"compress_level": 1}),
            "RGB PNG": ("png", colour, {"compress_level": 1}),
        }
        for name, (ending, image, settings) in kinds.items():
            path = Path(folder) / f"image.{ending}"
            image.save(path, **settings)
            words = [sys.executable, "-c", DECODE, str(path), str(SIZE), str(width * height)]
            found = subprocess.run(words, capture_output=True, text=True, check=True)
            seconds, peak = json.loads(found.stdout)
            table.add({"image": name, "CPU seconds": round(seconds, 2), "peak MiB": round(peak)})
    print(keep("large-images-cpu", table, {"width": width, "height": height, "size": SIZE}, "cpu", "", options.record))


if __name__ == "__main__":
    main()
