"""Keys: what a user can set, with type, bounds, default and help text, and how a value is read from text.

The annotation of a field of a configuration, or of a method's parameter, declares a key. `Annotated` holds its bounds
and its help text.
"""

import dataclasses
import inspect
import math
import os
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from twofold.errors import TwofoldError, close_to
from twofold.types import is_of


@dataclass(frozen=True)
class Bounds:
    """The range of a number, or of each number in a tuple."""

    low: float = -math.inf  # the smallest value
    high: float = math.inf  # the largest value
    above: bool = False  # exclude `low`
    below: bool = False  # exclude `high`

    def __str__(self) -> str:
        if self.below:
            return f"from {self.low:g} to below {self.high:g}"
        if self.high == math.inf:
            return f"above {self.low:g}" if self.above else f"at least {self.low:g}"
        if isinstance(self.high, int):
            return f"from {self.low} to {self.high}"
        return f"from {self.low:g} to {self.high:g}"

    def allow(self, value: float) -> bool:
        """Return whether the value is in the range."""
        return (value > self.low if self.above else value >= self.low) and (
            value < self.high if self.below else value <= self.high
        )


#: A number from 0 to 1.
Probability = Annotated[float, Bounds(0, 1)]
#: A number from 0 to below 1.
Momentum = Annotated[float, Bounds(0, 1, below=True)]
#: A number above 0.
Positive = Annotated[float, Bounds(0, above=True)]
#: A number of at least 0.
NonNegative = Annotated[float, Bounds(0)]
#: A whole number of at least 1.
Count = Annotated[int, Bounds(1)]
#: A probability, or one for each view.
PerView = Probability | tuple[Probability, ...]
#: The widths of layers, such as those of a projector.
Widths = tuple[Count, ...]


@dataclass(frozen=True)
class Key:
    """A key: its name on the command line, its type with bounds, its default and its help text."""

    name: str
    hint: Any
    default: Any
    help: str


Schema = dict[str, Key]


def _key(name: str, hint: Any, default: Any) -> Key:
    texts = [extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, str)]
    return Key(name, hint, default, texts[-1] if texts else "")


def section_keys(section: type, prefix: str = "") -> Schema:
    """The keys of a dataclass of a configuration; those of a nested dataclass have its name and a dot as a prefix."""
    hints = typing.get_type_hints(section, include_extras=True)
    keys: Schema = {}
    for item in dataclasses.fields(section):
        hint = hints[item.name]
        if dataclasses.is_dataclass(hint):
            keys |= section_keys(typing.cast(type, hint), f"{prefix}{item.name}.")
        elif item.name not in ("parameters", "origin"):
            keys[prefix + item.name] = _key(prefix + item.name, hint, item.default)
    return keys


def keyword_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The types of the keyword-only parameters, with bounds and help texts.

    Types of other parameters and of the returned value are not evaluated. In the catalog, only a type checker imports
    these names, because their modules need torch.
    """
    annotations = inspect.get_annotations(function)
    parameters = inspect.signature(function).parameters.values()

    def keywords() -> None: ...

    keywords.__annotations__ = {
        each.name: annotations[each.name]
        for each in parameters
        if each.kind is each.KEYWORD_ONLY and each.name in annotations
    }
    return typing.get_type_hints(keywords, getattr(inspect.unwrap(function), "__globals__", {}), include_extras=True)


def parameter_keys(function: Callable[..., Any]) -> Schema:
    """The keys of a method: its keyword-only parameters. A section such as `graph` has several keys."""
    hints = keyword_hints(function)
    keys: Schema = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        if name not in hints or parameter.default is inspect.Parameter.empty:
            raise TwofoldError(
                f"{function.__name__}'s '{name}' is a key: give it a type and a default, as in k: int = 3"
            )
        if dataclasses.is_dataclass(hints[name]):
            keys |= section_keys(hints[name], f"{name}.")
        elif not is_readable(hints[name]):
            raise TwofoldError(
                f"{function.__name__}'s '{name}' is a key, but the command line cannot read the type "
                f"{inspect.formatannotation(hints[name])}: use bool, int, float, str, a Literal, or a tuple of them "
                "such as tuple[float, ...]"
            )
        else:
            keys[name] = _key(name, hints[name], _checked_default(function, name, parameter.default, hints[name]))
    return keys


def _checked_default(function: Callable[..., Any], name: str, default: Any, hint: Any) -> Any:
    """The default as the type of its annotation, because a run saves it and must be able to load it."""
    try:
        return coerce(default, hint)
    except ValueError:
        remedy = "add '| None' to its type, as in float | None = None" if default is None else "change type or default"
        raise TwofoldError(
            f"{function.__name__}'s '{name}' has the default {shown(default)}, which is not {describe(hint)}: {remedy}"
        ) from None


def describe(hint: Any) -> str:
    """A type in plain words, such as "a number above 0"."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        bounds = [str(extra) for extra in arguments[1:] if isinstance(extra, Bounds)]
        return " ".join([describe(arguments[0]), *bounds])
    if origin is Literal:
        return " or ".join(str(argument) for argument in arguments)
    if origin in (typing.Union, types.UnionType):
        return ", or ".join(describe(argument) for argument in arguments)
    if origin is tuple:
        of = describe(arguments[0])
        return f"{'a list of' if Ellipsis in arguments else len(arguments)} values (each {of})"
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "none"}
    return names.get(hint, str(hint))


def is_readable(hint: Any) -> bool:
    """Whether `coerce` can read values of this type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return is_readable(arguments[0])
    if origin in (typing.Union, types.UnionType, tuple):
        return bool(arguments) and all(is_readable(part) for part in arguments if part is not Ellipsis)
    return origin is Literal or hint in (bool, int, float, str, type(None))


# What other libraries call a key, for suggestions.
SYNONYMS = {
    "learning_rate": "lr",
    "base_lr": "lr",
    "max_epochs": "epochs",
    "num_epochs": "epochs",
    "batch": "batch_size",
    "bs": "batch_size",
    "img_size": "image_size",
    "input_size": "image_size",
    "resolution": "image_size",
    "arch": "encoder",
    "architecture": "encoder",
    "backbone": "encoder",
    "model": "encoder",
    "pretrained": "init",
    "weights": "init",
    "random_state": "seed",
    "num_views": "views",
    "n_views": "views",
    "wd": "weight_decay",
    "warmup": "warmup_epochs",
    "scheduler": "schedule",
    "grad_clip": "clip",
    "accumulate": "pieces",
    "amp": "precision",
    "tau": "temperature",
    "n_neighbors": "graph.neighbours",
}


def key_close_to(word: str, keys: typing.Iterable[str]) -> str | None:
    """Return the key that a word resembles, by its name, by its part after the dot, or by a synonym; None if none."""
    names = set(keys)
    known = {name.rpartition(".")[2]: name for name in sorted(names)}
    known |= {synonym: name for synonym, name in SYNONYMS.items() if name in names} | {name: name for name in names}
    close = close_to(word, known, cutoff=0.6)
    return known[close] if close else None


def nearest_key(word: str, keys: typing.Iterable[str]) -> str:
    """Return `, did you mean 'lr'?` if a key resembles the word, otherwise how to list all keys."""
    close = key_close_to(word, keys)
    return f", did you mean '{close}'?" if close else "; list the keys of a method with: twofold methods NAME"


def coerce(value: Any, hint: Any) -> Any:
    """Convert a value, given as text, JSON or Python, to the type `hint`; raise ValueError if that is not possible."""
    value = _of_python(value)
    read = _READERS.get(typing.get_origin(hint) or hint)
    if read is None:
        raise TypeError(f"values of the type {hint} cannot be read")
    return read(value, typing.get_args(hint))


def _read_bounded(value: Any, arguments: tuple[Any, ...]) -> Any:
    value = coerce(value, arguments[0])
    parts = [part for part in (value if isinstance(value, tuple) else (value,)) if part is not None]
    if not all(bounds.allow(part) for bounds in arguments[1:] if isinstance(bounds, Bounds) for part in parts):
        raise ValueError(value)
    return value


def _read_choice(value: Any, choices: tuple[Any, ...]) -> Any:
    for choice in choices:
        if str(choice) == str(value):
            return choice
    raise ValueError(value)


def _read_union(value: Any, arguments: tuple[Any, ...]) -> Any:
    # None comes first, because "none" is also a text.
    for argument in sorted(arguments, key=lambda each: each is not type(None)):
        try:
            return coerce(value, argument)
        except ValueError:
            continue
    raise ValueError(value)


def _read_tuple(value: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    parts = value.strip("()[] ").split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)):
        raise ValueError(value)
    if Ellipsis in arguments:
        if not parts or parts == [""]:
            raise ValueError(value)
        return tuple(coerce(part, arguments[0]) for part in parts)
    if len(parts) != len(arguments):
        raise ValueError(value)
    return tuple(coerce(part, argument) for part, argument in zip(parts, arguments, strict=True))


def _read_none(value: Any, _: tuple[Any, ...]) -> None:
    if value is not None and not (isinstance(value, str) and value.lower() == "none"):
        raise ValueError(value)


def _read_bool(value: Any, _: tuple[Any, ...]) -> bool:
    words = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise ValueError(value)


def _read_float(value: Any, _: tuple[Any, ...]) -> float:
    if isinstance(value, bool) or value is None:
        raise ValueError(value)
    try:
        number = float(value)
    except (TypeError, OverflowError) as error:
        raise ValueError(value) from error
    if not math.isfinite(number):
        raise ValueError(value)
    return number


def _read_int(value: Any, arguments: tuple[Any, ...]) -> int:
    number = _read_float(value, arguments)
    if number != int(number):
        raise ValueError(value)
    # int(str) keeps every digit of a large seed, while float does not.
    return int(value) if not isinstance(value, str) or value.strip("+-").isdigit() else int(number)


def _read_text(value: Any, _: tuple[Any, ...]) -> str:
    if is_of(value, "torch", "device"):
        return str(value)
    if not isinstance(value, (str, os.PathLike)):
        raise ValueError(value)
    return os.fspath(value)


_READERS: dict[Any, Callable[[Any, tuple[Any, ...]], Any]] = {
    Annotated: _read_bounded,
    Literal: _read_choice,
    typing.Union: _read_union,
    types.UnionType: _read_union,
    tuple: _read_tuple,
    type(None): _read_none,
    bool: _read_bool,
    float: _read_float,
    int: _read_int,
    str: _read_text,
}


def _of_python(value: Any) -> Any:
    return value.tolist() if is_of(value, "numpy", "ndarray", "generic") else value


def checked(name: str, value: Any, hint: Any) -> Any:
    """Convert a value as `coerce` does; the error is a message for users."""
    try:
        return coerce(value, hint)
    except ValueError:
        raise TwofoldError(f"{name}={shown(value)} is not {describe(hint)}") from None


def parse_overrides(words: typing.Iterable[str]) -> dict[str, str]:
    """Convert `["epochs=3", "augment.flip=0"]` to a dictionary; a key that is given twice is an error."""
    values: dict[str, str] = {}
    for word in words:
        name, _, value = word.partition("=")
        if name in values:
            raise TwofoldError(f"{name} is given twice: {name}={values[name]} and {word}")
        values[name] = value
    return values


def shown(value: Any) -> str:
    """A value as a user types it on the command line."""
    value = _of_python(value)
    if isinstance(value, (tuple, list)):
        return ",".join(shown(part) for part in value)
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(value)
