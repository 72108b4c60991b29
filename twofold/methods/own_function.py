"""A function of the user's own, which a key names as `rules.py:function` or `package.module:function`."""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twofold.errors import TwofoldError


def load_function(reference: str, key: str) -> Callable[..., Any]:
    """Import a function of the user's own.

    Parameters
    ----------
    reference : str
        `rules.py:function`, a file relative to the current folder, or `package.module:function`, a module that Python
        finds, also in the current folder.
    key : str
        The key with this value, for messages.
    """
    where, _, name = reference.rpartition(":")
    try:
        module = _from_file(Path(where)) if where.endswith(".py") else _from_name(where)
    except (ImportError, FileNotFoundError, ValueError) as error:
        raise TwofoldError(
            f"{key}={reference}: '{where}' cannot be imported ({error}); write FILE.py:FUNCTION or MODULE:FUNCTION"
        ) from None
    function = getattr(module, name, None)
    if not callable(function):
        raise TwofoldError(f"{key}={reference}: {where} has no function '{name}'")
    return function


def reference_to(function: Callable[..., Any], key: str) -> str:
    """Return `package.module:function`, by which a run finds a function again."""
    reference = f"{getattr(function, '__module__', None)}:{getattr(function, '__qualname__', '')}"
    where, _, name = reference.rpartition(":")
    if getattr(sys.modules.get(where), name, None) is not function:
        raise TwofoldError(
            f"{key} is {function!r}, which a resumed run would not find: define a function with a name in a module, "
            "not inside another function"
        )
    return reference


def _from_name(where: str) -> Any:
    # The program `twofold` does not look for modules in the current folder, but `python -m twofold` does.
    place = len(sys.path)
    sys.path.append(str(Path.cwd()))
    try:
        return importlib.import_module(where)
    finally:
        del sys.path[place]


def _from_file(path: Path) -> Any:
    known_as = f"twofold_own_{path.stem}"
    spec = importlib.util.spec_from_file_location(known_as, path.expanduser().resolve())
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[known_as] = module  # dataclasses and pickles of the file look their module up here
    spec.loader.exec_module(module)
    return module
