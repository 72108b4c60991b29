"""Check the content of JSON files, so that code behind a reader can rely on its types and ranges.

A check takes a value and returns what is wrong with it, such as ".table[0].name is 3, not text", or an empty text.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twofold.checksums import unseal
from twofold.errors import TwofoldError
from twofold.files import read_regular

Check = Callable[[Any], str]

LARGE = 1e15  # no count, time or size in our files is larger
MOST_BYTES = 2**24  # of a JSON file that is read at once
SHOWN = 40  # characters of a wrong value in a message


def read_json(path: Path, check: Check, remedy: str, refuse: Callable[[Any, str], None] = lambda *_: None) -> Any:
    """Return the content of a JSON file that has its checksum, if any, and satisfies a check.

    `remedy` says what the user can do if it does not. `refuse` receives the content and the path before the check. It
    raises an error for another format, whose content may be different.
    """
    try:
        value = json.loads(read_regular(path, MOST_BYTES))
    except OSError as error:
        raise TwofoldError(f"{path} cannot be read ({error.strerror or error}); {remedy}") from None
    except (ValueError, RecursionError) as error:
        raise TwofoldError(f"{path} is not JSON ({str(error)[:200]}); {remedy}") from None
    value = unseal(value, path, remedy)
    refuse(value, str(path))
    if problem := check(value):
        raise TwofoldError(f"{path} does not have the contents that Twofold writes: {problem.lstrip('.')}; {remedy}")
    return value


def anything(_: Any) -> str:
    return ""


def text(value: Any) -> str:
    return "" if isinstance(value, str) else _is_not(value, "text")


def flag(value: Any) -> str:
    return "" if isinstance(value, bool) else _is_not(value, "true or false")


def number(low: float = -LARGE, high: float = LARGE) -> Check:
    """Check for a finite number in a range."""

    def check(value: Any) -> str:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return "" if is_number and low <= value <= high else _is_not(value, f"a number from {low:g} to {high:g}")

    return check


def whole(low: int = 0, high: float = LARGE) -> Check:
    """Check for an integer in a range."""

    def check(value: Any) -> str:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return "" if is_whole and low <= value <= high else _is_not(value, f"a whole number from {low} to {high:g}")

    return check


def measure(value: Any) -> str:
    """Check for a float of any size, also NaN or infinite, or a whole number that is not too large."""
    if isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGE):
        return ""
    return _is_not(value, "a number")


def optional(check: Check) -> Check:
    """Also allow null."""
    return lambda value: "" if value is None else check(value)


def either(*checks: Check) -> Check:
    """Allow what satisfies one of the checks. The message is that of the last one."""

    def check(value: Any) -> str:
        problem = ""
        for each in checks:
            if not (problem := each(value)):
                return ""
        return problem

    return check


def items(check: Check, count: int | None = None) -> Check:
    """Check each item of a list, and its length."""

    def check_items(value: Any) -> str:
        if not isinstance(value, list) or (count is not None and len(value) != count):
            return _is_not(value, "a list" if count is None else f"a list of {count} items")
        if check is measure and all(type(item) is float for item in value):  # fast for eigenvalues
            return ""
        return next((f"[{place}]{problem}" for place, item in enumerate(value) if (problem := check(item))), "")

    return check_items


def values(check: Check) -> Check:
    """Check each value of an object."""

    def check_values(value: Any) -> str:
        if not isinstance(value, dict):
            return _is_not(value, "an object")
        return next((f".{key[:SHOWN]}{problem}" for key, item in value.items() if (problem := check(item))), "")

    return check_values


def fields(required: dict[str, Check], others: dict[str, Check] | None = None) -> Check:
    """Check the named values of an object. Those in `others` may be missing. An object may have more values."""
    known = required | (others or {})

    def check(value: Any) -> str:
        if not isinstance(value, dict):
            return _is_not(value, "an object")
        for key in required:
            if key not in value:
                return f" has no {key}"
        return next((f".{key}{problem}" for key in known if key in value and (problem := known[key](value[key]))), "")

    return check


def _is_not(value: Any, kind: str) -> str:
    try:
        shown = json.dumps(value)
    except (ValueError, RecursionError):
        shown = type(value).__name__
    if isinstance(value, float) and not math.isfinite(value):
        shown = str(value)
    return f" is {shown[:SHOWN]}{'…' if len(shown) > SHOWN else ''}, not {kind}"
