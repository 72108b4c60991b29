"""pictures.json of a run folder: `pictures` makes what is in it, pages and records read it. It needs no torch."""

import json
import re
from typing import Any

from twofold.errors import TwofoldError
from twofold.runs.folder import RunFolder

FILE = "pictures.json"
FORMAT = 1


def read_pictures(folder: RunFolder) -> dict[str, Any]:
    """What was kept; nothing where nothing was, or where another version of Twofold kept it."""
    path = folder.path / FILE
    try:
        kept = json.loads(path.read_text()) if path.exists() else {}
    except ValueError as error:
        raise TwofoldError(f"{path} is not JSON ({error}); delete it, and `twofold report` makes it again") from None
    if not isinstance(kept, dict) or kept.get("format") != FORMAT:
        return {}
    parts = [part for part in map(kept.get, ("map", "neighbours", "views")) if part is not None]
    if not all(isinstance(part, dict) and is_sheet(part.get("sheet")) for part in parts):
        raise TwofoldError(f"{path} is not what Twofold wrote there; delete it, and `twofold report` makes it again")
    return kept


def write(folder: RunFolder, pictures: dict[str, Any]) -> None:
    folder.write(FILE, json.dumps(pictures, separators=(",", ":"), allow_nan=False) + "\n")


def is_sheet(record: Any) -> bool:
    """Whether this is what `sheet` made. A page writes it into a style as it is, so it must bring nothing else."""
    if not isinstance(record, dict):
        return False
    numbers = all(isinstance(record.get(key), int) for key in ("side", "gutter", "columns", "rows"))
    address = r"data:image/(png|webp);base64,[A-Za-z0-9+/=]*"
    return numbers and re.fullmatch(address, str(record.get("address"))) is not None
