"""The registry of methods: for each name the function that builds the method, its keys, its recipe and its texts."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from twofold.config import RUN_KEYS, SECTIONS
from twofold.errors import TwofoldError, close_to, nearest
from twofold.keys import Schema, key_close_to, keyword_hints, parameter_keys
from twofold.methods.own_function import load_function

if TYPE_CHECKING:
    from twofold.methods.method import Method

Family = Literal["contrastive", "covariance", "predictive", "relational", "assignment", "own"]


Builder = Callable[..., "Method"]  # (parts: Parts, *, own parameters of the method)
Recipe = Mapping[str, Any] | Callable[[Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True)
class Entry:
    """A method of the catalog. The keyword parameters of `build` are its keys.

    `recipe` has the method's own defaults for keys that all runs have. It is a function of the method's parameters if
    it depends on one of them, for example on whether there is a teacher.
    """

    name: str
    build: Builder  # the function that builds the method
    family: Family  # the group of the method in lists
    paper: str  # the paper that the method comes from
    summary: str  # the first line of the docstring of `build`
    recipe: Recipe
    few_images: Mapping[str, Any] = field(default_factory=dict)  # further defaults for fewer than 512 images
    by_batch: Callable[[int], Mapping[str, Any]] = lambda _: {}  # further defaults for a batch size
    continued: Mapping[str, Any] = field(default_factory=dict)  # further defaults for runs that start from weights
    has_short_recipe: bool = True  # whether `short_recipe` suits the method; false for training with labels
    source: str = ""  # where the defaults come from
    formula: str = ""  # the formula of the loss, in Unicode, for the terminal
    latex: str = ""  # the same formula as LaTeX, for the documentation site
    symbols: str = ""  # what the letters of the formula mean
    state: str = ""  # state that outlives a step, in addition to trained weights
    memory: str = ""  # memory that the loss needs in a step
    choose: str = ""  # when to choose the method

    def recipe_for(self, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the recipe for these parameters of the method."""
        return self.recipe(parameters) if callable(self.recipe) else self.recipe


CATALOG: dict[str, Entry] = {}

ABOUT = ("source", "formula", "latex", "symbols", "state", "memory", "choose")  # texts of an Entry
OF_PRETRAIN = (
    "config",
    "method",
    "out",
    "encoder",
    "minutes",
    "quiet",
)  # other arguments of twofold.pretrain


def entry(
    bare: None = None,
    /,
    *,
    family: Family = "own",
    paper: str = "",
    recipe: Recipe = MappingProxyType({}),
    few_images: Mapping[str, Any] = MappingProxyType({}),
    by_batch: Callable[[int], Mapping[str, Any]] = lambda _: {},
    continued: Mapping[str, Any] = MappingProxyType({}),
    has_short_recipe: bool = True,
    name: str | None = None,
    **about: str,
) -> Callable[[Builder], Builder]:
    """Register a function as a method, so that `twofold.pretrain` and the command line find it by name.

    The first line of the function's docstring is the summary that `twofold methods` shows. All parameters are optional.

    Parameters
    ----------
    family : str
        The group of the method in lists.
    paper : str
        The paper that the method comes from.
    recipe : mapping or callable
        The method's own defaults for keys that all runs have, such as `optimizer`. If they depend on the method's
        parameters, pass a function of these parameters.
    few_images : mapping
        Further defaults of the method if there are fewer than 512 images.
    by_batch : callable
        Function from the batch size to further defaults of the method.
    continued : mapping
        Further defaults for runs that start from weights, instead of those that all methods share.
    has_short_recipe : bool
        Whether short runs on a CPU use the recipe that the methods of the catalog share. Never for your own methods.
    name : str, optional
        The name of the method. Default: the function's name, with hyphens for underscores.
    **about : str
        Texts for the documentation, as in `Entry`: source, formula, latex, symbols, state, memory and choose.

    Examples
    --------
    >>> @entry(recipe={"optimizer": "adamw", "lr": 1e-3})
    ... def mine(parts: Parts, *, weight: float = 1.0) -> Method:
    ...     "My own method."
    ...     return Method(parts, mlp(parts.features, (512, 128)), lambda e: my_loss(e.z, weight))
    """
    if bare is not None:
        raise TwofoldError("@entry needs parentheses: write @entry(), or @entry(name='mine')")
    for given in about.keys() - set(ABOUT):
        others = [each.name for each in inspect.signature(entry).parameters.values() if each.kind is each.KEYWORD_ONLY]
        raise TwofoldError(f"entry takes no '{given}'{nearest(given, [*others, *ABOUT])}")

    def register(build: Builder) -> Builder:
        known_as = name or build.__name__.replace("_", "-")
        # The module that defined a method may define it again.
        if known_as in CATALOG and CATALOG[known_as].build.__module__ != build.__module__:
            raise TwofoldError(f"there is already a method '{known_as}': give yours another name")
        summary = next(iter((build.__doc__ or "").strip().splitlines()), "")
        refuse_unusable_parameters(known_as, build)
        CATALOG[known_as] = Entry(
            known_as,
            build,
            family,
            paper,
            summary,
            recipe,
            few_images,
            by_batch,
            continued,
            has_short_recipe and family != "own",
            **about,
        )
        return build

    return register


def refuse_unusable_parameters(known_as: str, build: Builder) -> None:
    """Raise an error for parameters that a run could not set, or that have the name of something else."""
    for parameter in list(inspect.signature(build).parameters.values())[1:]:
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
            name = parameter.name
            raise TwofoldError(
                f"{known_as}'s '{name}' is not a keyword parameter: write '*,' before it, as in (parts, *, {name}=...)"
            )
    hints = keyword_hints(build)
    for key in parameter_keys(build):  # raises an error for a missing or unreadable type and for an invalid default
        name, dot, _ = key.partition(".")
        if "__" in name:
            raise TwofoldError(f"{known_as}'s '{name}' has '__', which stands for a dot in Python: write '_' instead")
        if key in RUN_KEYS:
            raise TwofoldError(f"{known_as}'s '{key}' is a key of every run: give the parameter another name")
        if key in OF_PRETRAIN:
            raise TwofoldError(f"{known_as}'s '{key}' is an argument of twofold.pretrain: give it another name")
        if dot and hints[name] is not SECTIONS.get(name):
            raise TwofoldError(f"{known_as}'s '{name}' is a dataclass: give each of its values a parameter of its own")


def name_of_method(reference: str) -> str:
    """Return the name of a method. `rules.py:mine` or `package.module:mine` imports and registers the user's own."""
    if ":" not in reference:
        return reference
    function = load_function(reference, "method")
    name = next((each.name for each in CATALOG.values() if each.build is function), None)
    if name is None:
        raise TwofoldError(
            f"method={reference}: this function is not a method; write @twofold.methods.entry() in the line before it"
        )
    return name


def find(name: str) -> Entry:
    """Return the entry of a method, or raise an error that names the nearest method."""
    if name not in CATALOG:
        # A name that is only a little like a method may be that of the user's own method.
        own = "" if close_to(name, CATALOG, cutoff=0.7) else " (a method of your own: FILE.py:FUNCTION)"
        raise TwofoldError(f"unknown method '{name}'{own}{nearest(name, list(CATALOG))}")
    return CATALOG[name]


def schema(name: str) -> Schema:
    """Return all keys of a run of this method, by name: those of all runs, and those of the method."""
    return RUN_KEYS | _own_keys(find(name).build)


# The pages of results look up the keys of thousands of runs, and reading type hints takes a millisecond.
_own_keys = cache(parameter_keys)


def schema_of_run(name: str, values: Mapping[str, Any]) -> Schema:
    """The keys of a saved run with these `values`.

    If the method is not registered, or is registered with other parameters than the run's, these are the keys that all
    runs share. They are enough for commands that do not train.
    """
    return RUN_KEYS if name not in CATALOG or are_of_another(name, values) else schema(name)


def are_of_another(name: str, values: Mapping[str, Any]) -> bool:
    """Whether a user's method has other parameters now than those in a run's values."""
    return find(name).family == "own" and values.keys() - RUN_KEYS.keys() != schema(name).keys() - RUN_KEYS.keys()


def refuse_unregistered(name: str, run: object, values: Mapping[str, Any]) -> None:
    """Raise an error if the method of a run is not registered, or has other parameters now."""
    if name in CATALOG and are_of_another(name, values):
        raise TwofoldError(
            f"{run} was trained with '{name}' when this method had other parameters: define it as it was then"
        )
    if name not in CATALOG:
        raise TwofoldError(
            f"{run} was trained with '{name}', a method that is not registered here: pass --method FILE.py:FUNCTION to "
            "`twofold resume` (in Python, import the module that defines it first)"
        )


def refuse_keys_of_others(method: str, names: Iterable[str]) -> None:
    """Raise an error for keys of other methods, misspelt ones too. The message names the methods that have the key."""
    own = schema(method)
    of_others = {key for other in CATALOG for key in schema(other)} - own.keys()
    for name in names:
        meant = name if name in of_others else key_close_to(name, of_others)
        if name in own or meant is None or (meant != name and key_close_to(name, own)):
            continue
        owners = ", ".join(sorted(other for other in CATALOG if meant in schema(other)))
        slip = "" if meant == name else f"unknown key '{name}', did you mean '{meant}'? "
        raise TwofoldError(f"{slip}{method} has no key '{meant}'; methods with this key: {owners}")
