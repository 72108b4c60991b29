"""A function of the user's own, which a key names as `rules.py:function` or `package.module:function`."""

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twofold.errors import TwofoldError

PASSED = "passed"  # the start of a reference to a function that was passed to this program


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
    if reference in _passed:
        return _passed[reference]
    where, _, name = reference.rpartition(":")
    if where == PASSED:
        raise TwofoldError(
            f"{key} was a function of a program ({name}): pass it again, with twofold.resume(run, transform=...)"
        )
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


# Functions of a program that have no name by which a file could be found again.
_passed: dict[str, Callable[..., Any]] = {}


def pass_function(function: Callable[..., Any], reference: str | None = None) -> str:
    """Make a function of this program known under a reference, and return the reference.

    By default this is `package.module:function`, if that finds the function. Otherwise it is a text that only this
    program understands, so a resumed run needs the function again.
    """
    if reference is None:
        try:
            return reference_to(function, "")
        except TwofoldError:
            name = getattr(function, "__qualname__", type(function).__qualname__)
            code = getattr(function, "__code__", None)
            content = b"" if code is None else code.co_code + repr(code.co_consts).encode()
            reference = f"{PASSED}:{name}-{hashlib.blake2b(content, digest_size=4).hexdigest()}"
    _passed[reference] = function
    return reference


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


def with_absolute_file(reference: str) -> str:
    """Return the reference with the absolute path of its file, so that another working folder finds it."""
    where, _, name = reference.rpartition(":")
    return f"{Path(where).expanduser().resolve()}:{name}" if where.endswith(".py") else reference
