"""How a method is known by its name: what it builds, its keys, its recipe, and what to say of it."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from twofold.config import RUN_KEYS, SECTIONS
from twofold.errors import TwofoldError, close_to, nearest
from twofold.keys import Schema, keyword_hints, parameter_keys

if TYPE_CHECKING:
    from twofold.methods.method import Method

Family = Literal["contrastive", "covariance", "predictive", "relational", "assignment", "own"]


Builder = Callable[..., "Method"]  # (parts: Parts, *, its own parameters)
Recipe = Mapping[str, Any] | Callable[[Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True)
class Entry:
    """A method of the catalog. Its keys are the builder's keyword parameters.

    `recipe` sets keys of the run; where it depends on a parameter, such as whether there is a teacher, it is a function
    of the parameters.
    """

    name: str
    build: Builder
    family: Family
    paper: str
    summary: str
    recipe: Recipe
    few_images: Mapping[str, Any] = field(default_factory=dict)  # what suits fewer than 512
    by_batch: Callable[[int], Mapping[str, Any]] = lambda _: {}  # what suits a batch of so many
    source: str = ""  # of the defaults
    formula: str = ""  # of the loss, in Unicode, for the terminal
    latex: str = ""  # the same formula as LaTeX, for the documentation site
    symbols: str = ""  # what the letters of the formula mean
    state: str = ""  # what outlives a step, beside trained weights
    memory: str = ""  # that the loss takes in a step
    choose: str = ""  # when to

    def recipe_for(self, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.recipe(parameters) if callable(self.recipe) else self.recipe


CATALOG: dict[str, Entry] = {}

ABOUT = ("source", "formula", "latex", "symbols", "state", "memory", "choose")  # texts of an Entry
OF_PRETRAIN = ("config", "method", "out", "encoder", "minutes", "quiet")  # arguments of twofold.pretrain, beside keys


def entry(
    bare: None = None,
    /,
    *,
    family: Family = "own",
    paper: str = "",
    recipe: Recipe = MappingProxyType({}),
    few_images: Mapping[str, Any] = MappingProxyType({}),
    by_batch: Callable[[int], Mapping[str, Any]] = lambda _: {},
    name: str | None = None,
    **about: str,
) -> Callable[[Builder], Builder]:
    """Put a builder into the catalog; the first line of its docstring is what `twofold methods` says of it.

    `recipe` sets keys of the run, `few_images` those that suit fewer than 512 images, `by_batch` those that follow from
    the batch size of others. `about`: source, formula, state, memory and choose, from which docs/methods.md is made; a
    method of one's own needs none of it.
    """
    if bare is not None:
        raise TwofoldError("@entry needs parentheses: write @entry(), or @entry(name='mine')")
    for given in about.keys() - set(ABOUT):
        others = [each.name for each in inspect.signature(entry).parameters.values() if each.kind is each.KEYWORD_ONLY]
        raise TwofoldError(f"entry takes no '{given}'{nearest(given, [*others, *ABOUT])}")

    def register(build: Builder) -> Builder:
        known_as = name or build.__name__.replace("_", "-")
        if known_as in CATALOG and CATALOG[known_as].build.__module__ != build.__module__:  # else it is defined anew
            raise TwofoldError(f"there is a method '{known_as}' already: give yours another name")
        summary = next(iter((build.__doc__ or "").strip().splitlines()), "")
        refuse_unusable_parameters(known_as, build)
        CATALOG[known_as] = Entry(known_as, build, family, paper, summary, recipe, few_images, by_batch, **about)
        return build

    return register


def refuse_unusable_parameters(known_as: str, build: Builder) -> None:
    """Those that a run could not set, or that would be taken for something else."""
    for parameter in list(inspect.signature(build).parameters.values())[1:]:
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
            name = parameter.name
            raise TwofoldError(
                f"{known_as}'s '{name}' is no key yet: write '*,' before it, as in (parts, *, {name}=...)"
            )
    hints = keyword_hints(build)
    for key in parameter_keys(build):  # refuses one without a type, a type that cannot be read, an unfit default
        name, dot, _ = key.partition(".")
        if "__" in name:
            raise TwofoldError(f"{known_as}'s '{name}' has '__', which stands for a dot in Python: write '_' instead")
        if key in RUN_KEYS:
            raise TwofoldError(f"{known_as}'s '{key}' is a key of every run: give the parameter another name")
        if key in OF_PRETRAIN:
            raise TwofoldError(f"{known_as}'s '{key}' is an argument of twofold.pretrain: give it another name")
        if dot and hints[name] is not SECTIONS.get(name):
            raise TwofoldError(f"{known_as}'s '{name}' is a dataclass: give each of its values a parameter of its own")


def find(name: str) -> Entry:
    if name not in CATALOG:
        raise TwofoldError(f"unknown method '{name}'{nearest(name, list(CATALOG))}")
    return CATALOG[name]


def schema(name: str) -> Schema:
    """Every key that a run of this method understands."""
    return RUN_KEYS | parameter_keys(find(name).build)


def schema_of_run(name: str, values: Mapping[str, Any]) -> Schema:
    """As `schema`; of a method of someone's own that is not registered here, or has other parameters by now than the
    run's `values`, the keys that all runs have. They are enough for what does not train."""
    return RUN_KEYS if name not in CATALOG or are_of_another(name, values) else schema(name)


def are_of_another(name: str, values: Mapping[str, Any]) -> bool:
    """Whether a method of someone's own was defined anew, with other parameters than those of a run's values."""
    return find(name).family == "own" and values.keys() - RUN_KEYS.keys() != schema(name).keys() - RUN_KEYS.keys()


def refuse_unregistered(name: str, run: object, values: Mapping[str, Any]) -> None:
    if name in CATALOG and are_of_another(name, values):
        raise TwofoldError(
            f"{run} was trained with '{name}' when it had other parameters than now: define it as it was then"
        )
    if name not in CATALOG:
        raise TwofoldError(
            f"{run} was trained with '{name}', a method that is not registered here: import the module that does, and "
            "call the function of the same name from Python"
        )


def refuse_keys_of_others(method: str, names: Iterable[str]) -> None:
    """A key that only other methods have is no slip of the pen: say whose it is. Nor is it where it is misspelt."""
    own = schema(method)
    of_others = {key for other in CATALOG for key in schema(other)} - own.keys()
    for name in names:
        meant = name if name in of_others else close_to(name, of_others)
        if name in own or meant is None or (meant != name and close_to(name, own)):
            continue
        owners = ", ".join(sorted(other for other in CATALOG if meant in schema(other)))
        section, dot, _ = meant.partition(".")
        slip = "" if meant == name else f"unknown key '{name}', did you mean '{meant}'? "
        raise TwofoldError(f"{slip}{method} takes no {section}: {meant if dot else 'it'} is a key of {owners}")
