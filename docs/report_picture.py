"""Draw the picture of the report in README: train on the digits and take a screenshot of the top of the page.

Run `python docs/report_picture.py`. The script needs Chromium and about two minutes on two CPU cores. Pass the folder
of a run to take the picture of that run instead.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import which

from PIL import Image

import twofold

PICTURE = Path(__file__).parent / "pictures" / "report.png"
WIDTH, HEIGHT = 1100, 1060  # CSS pixels


def screenshot(page: Path, picture: Path) -> None:
    """Render the top of a page. The palette of 128 colours keeps the file small."""
    browser = which("chromium") or which("chromium-browser") or which("google-chrome")
    if browser is None:
        raise SystemExit("report_picture.py needs Chromium")
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / "shot.png"
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=4000"]
        window = [f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={shot}", f"--user-data-dir={folder}/profile"]
        subprocess.run([browser, *options, *window, page.resolve().as_uri()], check=True, capture_output=True)
        image = Image.open(shot).convert("RGB").quantize(128)
    image.save(picture, optimize=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(twofold.pretrain("digits", out=f"{folder}/run").path)
        screenshot(run / "report.html", PICTURE)
    print(PICTURE)


if __name__ == "__main__":
    main()
