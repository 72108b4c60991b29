"""The file pictures.json of a run folder, which the module `pictures` creates and pages read.

This module does not import torch, so that pages are written quickly.
"""

import json
import re
from typing import Any

from twofold.errors import TwofoldError
from twofold.runs.folder import RunFolder

FILE = "pictures.json"
FORMAT = 1
REMEDY = "delete it and run `twofold report` to create it again"


def read_pictures(folder: RunFolder) -> dict[str, Any]:
    """Return the contents of pictures.json, or {} if it is missing or has the format of another version."""
    path = folder.path / FILE
    try:
        kept = json.loads(path.read_text()) if path.exists() else {}
    except ValueError as error:
        raise TwofoldError(f"{path} is not JSON ({error}); {REMEDY}") from None
    if not isinstance(kept, dict) or kept.get("format") != FORMAT:
        return {}
    parts = [part for part in map(kept.get, ("map", "neighbours", "views")) if part is not None]
    if not all(isinstance(part, dict) and is_sheet(part.get("sheet")) for part in parts):
        raise TwofoldError(f"{path} does not have the contents that Twofold writes; {REMEDY}")
    return kept


def write(folder: RunFolder, pictures: dict[str, Any]) -> None:
    folder.write(FILE, json.dumps(pictures, separators=(",", ":"), allow_nan=False) + "\n")


def is_sheet(record: Any) -> bool:
    """Return whether a record was made by `sheet`.

    A page writes the record into a style without escaping, so the record must not contain anything else.
    """
    if not isinstance(record, dict):
        return False
    numbers = all(isinstance(record.get(key), int) for key in ("side", "gutter", "columns", "rows"))
    address = r"data:image/(png|webp);base64,[A-Za-z0-9+/=]*"
    return numbers and re.fullmatch(address, str(record.get("address"))) is not None
