"""Opens pages in headless Chromium and returns their DOM after the scripts ran, console messages and screenshots."""

import base64
import io
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from twofold.report.gallery import position

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@dataclass(frozen=True)
class Element:
    tag: str
    attributes: dict[str, str | None]
    inside: tuple[str, ...]  # data-chart of the enclosing figures
    text: list[str]


class _Elements(HTMLParser):
    """All elements in document order. `text` is the text directly in an element, without that of its children."""

    VOID = frozenset({"meta", "link", "br", "img", "input", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self.open: list[Element] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        around = tuple(e.attributes["data-chart"] or "" for e in self.open if "data-chart" in e.attributes)
        self.elements.append(Element(tag, dict(attrs), around, []))
        if tag not in self.VOID:
            self.open.append(self.elements[-1])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop().tag != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self.open:
            self.open[-1].text.append(data)


def elements(html: str) -> list[Element]:
    parser = _Elements()
    parser.feed(html)
    return parser.elements


def texts(html: str, *tags: str) -> list[str]:
    """Return the text of all elements of these tags, without that of their children."""
    return ["".join(element.text).strip() for element in elements(html) if element.tag in tags]


@dataclass(frozen=True)
class Visit:
    dom: str
    console: list[str]


def _chromium(page: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory() as profile:
        command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]
        command += ["--disable-background-networking", "--disable-dev-shm-usage", f"--user-data-dir={profile}"]
        command += ["--enable-logging=stderr", "--virtual-time-budget=2000", *flags, page.resolve().as_uri()]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


def visit(page: Path, script: str = "", *flags: str) -> Visit:
    """Open a page from its file. `script` runs after the scripts of the page and acts like a user."""
    if script:
        copy = page.with_name(f"{page.stem}-visited.html")
        copy.write_text(page.read_text().replace("</body>", f"<script>{script}</script></body>"))
        page = copy
    done = _chromium(page, "--dump-dom", *flags)
    return Visit(done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line])


def screenshot(page: Path, picture: Path, width: int, height: int, *flags: str) -> None:
    _chromium(page, f"--screenshot={picture}", f"--window-size={width},{height}", *flags)


def width_needed(page: Path, width: int, frame: Path) -> tuple[int, int]:
    """Return the width of a page in a frame of `width` pixels, and the width of its content.

    A frame is used because the window of Chromium has a minimum width.
    """
    script = """
    document.querySelector("iframe").addEventListener("load", (event) => {
      const page = event.target.contentDocument.documentElement;
      document.body.append(`widths ${page.clientWidth} ${page.scrollWidth} .`);
    });"""
    style = f"width:{width}px;height:800px;border:0"
    frame.write_text(f'<iframe src="{page.resolve().as_uri()}" style="{style}"></iframe><script>{script}</script>')
    seen = visit(frame, "", "--allow-file-access-from-files")
    own, needed = seen.dom.split("widths ")[-1].split()[:2]
    return int(own), int(needed)


def opened(made: dict[str, Any]) -> tuple[str, np.ndarray]:
    kind, _, content = made["address"].partition(";base64,")
    return kind, np.asarray(Image.open(io.BytesIO(base64.b64decode(content))))


def tile_at(made: dict[str, Any], number: int) -> np.ndarray:
    """Return the pixels that a browser shows: CSS defines `background-position` p % as p % of (sheet − frame)."""
    _, pixels = opened(made)
    side = made["side"]
    across, down = (float(part.rstrip("%")) / 100 for part in position(made, number).split())
    left, top = round(across * (pixels.shape[1] - side)), round(down * (pixels.shape[0] - side))
    return pixels[top : top + side, left : left + side]


def paths(dom: str) -> dict[str, list[str]]:
    """Return the drawn lines of each chart."""
    drawn: dict[str, list[str]] = {}
    for element in elements(dom):
        if element.tag == "path" and element.attributes.get("class") == "line":
            drawn.setdefault(element.inside[0], []).append(element.attributes["d"] or "")
    return drawn


def coordinates(path: str) -> list[tuple[float, float]]:
    points = re.findall(r"[ML]([^,ML]+),([^,ML]+)", path)
    assert "".join(re.findall(r"[ML]", path)) == "M" + "L" * (len(points) - 1)
    return [(float(x), float(y)) for x, y in points]
