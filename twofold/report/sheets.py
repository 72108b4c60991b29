"""Sheets: many small pictures as tiles of one large picture, which is stored in a `data:` address.

Shapes: n pictures, C channels, H height, W width, S side of a tile.
"""

import base64
import io
import math
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from twofold.data.resample import resize

EXACT_BYTES = 2**20  # largest lossless sheet
MOST_BYTES = 3 * 2**20  # largest sheet: a page with two of them and the curves stays below 10 MB
GUTTER = 1
QUALITIES = (85, 70, 50, 30, 10)


def squares(pictures: Tensor, side: int) -> Tensor:
    """Resize pictures `[n, C, H, W]` to uint8 tiles `[n, 1 or 3, S, S]` on the CPU.

    Pictures with more than three channels keep the first three; pictures with two keep the first.
    """
    tiles = pictures[:, :3] if pictures.shape[1] >= 3 else pictures[:, :1]
    if tiles.shape[2:] != (side, side):
        tiles = resize(tiles, side).round().clamp(0, 255).to(torch.uint8)
    return tiles.cpu()


def sheet(tiles: Tensor) -> dict[str, Any]:
    """Arrange tiles `[n, 1 or 3, S, S]` in a nearly square sheet.

    The edge of each tile is repeated, GUTTER pixels wide. Without it, a browser that scales a tile to a fractional
    number of pixels would blend in pixels of the neighbouring tiles.
    """
    n, channels, side, _ = tiles.shape
    columns = math.ceil(math.sqrt(n))
    rows = math.ceil(n / columns)
    step = side + 2 * GUTTER
    blank = tiles.new_zeros(rows * columns - n, channels, side, side)
    framed = functional.pad(torch.cat([tiles, blank]).float(), (GUTTER,) * 4, mode="replicate").to(torch.uint8)
    grid = framed.view(rows, columns, channels, step, step)
    pixels = grid.permute(0, 3, 1, 4, 2).reshape(rows * step, columns * step, channels)
    picture = Image.fromarray(pixels.squeeze(-1).numpy())
    return {"side": side, "gutter": GUTTER, "columns": columns, "rows": rows, "address": _address(picture)}


def _address(picture: Image.Image) -> str:
    kind, content = "png", _encoded(picture, "PNG", optimize=True)
    if len(content) > EXACT_BYTES:
        for quality in QUALITIES:
            kind, content = "webp", _encoded(picture, "WEBP", quality=quality)
            if len(content) <= MOST_BYTES:
                break
    return f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"


def _encoded(picture: Image.Image, kind: str, **options: Any) -> bytes:
    target = io.BytesIO()
    picture.save(target, kind, **options)
    return target.getvalue()
