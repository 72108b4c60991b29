"""A table of a paper as runs: the configuration and the published numbers of each row, and its columns."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from twofold.config import Config, flat, resolve
from twofold.data.open import defaults_of, location_of
from twofold.errors import TwofoldError
from twofold.keys import coerce
from twofold.methods import find, schema
from twofold.verbs.choose import warm_up
from twofold_papers.reproduce.published import Conditions, Published
from twofold_papers.reproduce.readings import Column
from twofold_papers.reproduce.record import Record, record_name

if TYPE_CHECKING:
    from twofold_papers.reproduce.conclusions import Numbers


@dataclass(frozen=True)
class Setting:
    """A value of the configuration, and where the paper states it."""

    key: str
    value: Any
    source: str


@dataclass(frozen=True)
class Probe:
    """A further measurement of a finished run.

    It is a linear probe on other images, on the output of the projector or with another solver, or the alignment of a
    linear predictor.
    """

    name: str
    data: str | None = None  # None: the data of the run
    projected: bool = False
    solver: str = "lbfgs"
    alignment: bool = False  # the cosine of u and W_P u for each eigenvector u of E[zzᵀ] (IsoLoss, Figure 4)


@dataclass(frozen=True)
class Row:
    """A row of a table: one configuration, run with one or more seeds."""

    name: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    published: Mapping[str, Sequence[Published]] = field(default_factory=dict)  # by column title
    epochs: int | None = None  # None: as many as the table states
    probes: Sequence[Probe] = ()  # rows of several tables that share a run must have the same probes
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """A picture of the runs of a table; `draw` takes pairs of a name to display and a record."""

    name: str
    needs: str  # the key of a record that is drawn; runs without it are left out
    draw: Callable[[Sequence[tuple[str, Record]]], str]


@dataclass(frozen=True)
class Statement:
    """What a paper says about two rows of a table, or about one row and its published number.

    "first is above second", "below", "at least" (not below), or "equal" (the difference is at most `by`). With `by`,
    the first is above or below by at least so much. A difference of less than `least` is not decided if a row has a
    single seed. Both are in the unit of the column. With `other_column`, the second number is that of the first row in
    that column. `published` is what the paper has, if its numbers are not in the rows.
    """

    text: str
    source: str
    column: Column
    first: str
    relation: Literal["above", "below", "at least", "equal"]
    second: str | None = None
    by: float = 0.0
    least: float = 0.5
    epochs: int | None = None  # None: as many as the row
    published: str = ""
    other_column: Column | None = None
    is_main: bool = True  # whether the summary of the paper has it


Finding = str | Callable[["Numbers"], str]  # a sentence, or a function of our numbers that returns one


@dataclass(frozen=True)
class Table:
    """A table of a paper, or one of our own.

    `settings` apply to all rows whose method has the key. `differs` lists differences from the paper. `statements`
    are those of the paper about the rows; whether we agree is computed. `findings` are further sentences about what
    the records show. A sentence with numbers is a function of them, so that it follows the records; it is left out
    while a number is missing.
    """

    name: str
    paper: str
    number: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    epochs: int
    settings: Sequence[Setting] = ()
    differs: Sequence[str] = ()
    statements: Sequence[Statement] = ()
    findings: Sequence[Finding] = ()
    data: str = "cifar10"
    benchmark: str = ""  # the benchmark that has the results, if the rows are not runs
    command: str = ""  # the command that runs the benchmark
    figures: Sequence[Figure] = ()

    def is_published(self, column: Column) -> bool:
        """Whether the paper has numbers for this column."""
        return any(row.published.get(column.title) for row in self.rows)


@dataclass(frozen=True)
class Job:
    """One run of a table; `name` is that of its record. `refused` states why the run is impossible, if it is."""

    table: Table
    row: Row
    run: Conditions
    seed: int
    keys: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    refused: str = ""


def jobs_of(
    table: Table,
    rows: Iterable[Row],
    *,
    epochs: int | None = None,
    seeds: Sequence[int] = (0,),
    user: Mapping[str, Any] | None = None,
) -> list[Job]:
    """The runs of all rows with the first seed, then of all rows with the second seed, and so on."""
    rows = [] if table.benchmark else list(rows)
    return [
        job_of(table, row, epochs or row.epochs or table.epochs, seed, user or {}) for seed in seeds for row in rows
    ]


def job_of(table: Table, row: Row, epochs: int, seed: int, user: Mapping[str, Any]) -> Job:
    try:
        keys = keys_of(table, row, epochs, seed, user)
        config = resolve(schema(row.method), {"user": keys})
        encoder = encoder_of(table, row, user)
    except TwofoldError as error:
        return Job(table, row, Conditions(table.data, "", epochs), seed, refused=str(error))
    run = Conditions(keys["data"], encoder, epochs)
    return Job(table, row, run, seed, keys, record_name({"values": flat(config), "origin": config.origin}))


def encoder_of(table: Table, row: Row, user: Mapping[str, Any]) -> str:
    """The network of a row, with the settings of the user."""
    data = location_of(str(user.get("data", table.data)))
    known = schema(row.method)
    suited = {key: value for key, value in user.items() if key in known and key != "data"}
    values = flat(usual_of(row.method, data, wanted_of(table, row) | suited)) | wanted_of(table, row) | suited
    return str(values["encoder"])


def keys_of(table: Table, row: Row, epochs: int, seed: int, user: Mapping[str, Any]) -> dict[str, Any]:
    """The settings to pass to a run: those that differ from the method's recipe and the defaults of the data.

    They are also the settings in the name of the record. Seed 0 is the default and is not passed.
    """
    known = schema(row.method)
    wanted = wanted_of(table, row)
    suited = {key: value for key, value in user.items() if key in known}
    data = location_of(str(suited.get("data", table.data)))
    usual = flat(usual_of(row.method, data, wanted | suited))
    usual["warmup_epochs"] = warm_up(usual["warmup_epochs"], epochs)
    differing = {key: value for key, value in wanted.items() if coerce(value, known[key].hint) != usual[key]}
    numbers = {"epochs": epochs} | ({"seed": seed} if seed else {})
    return {"method": row.method} | differing | suited | {"data": data} | numbers


def wanted_of(table: Table, row: Row) -> dict[str, Any]:
    """The settings of a row: those of the table, overridden by those of the row."""
    known = schema(row.method)
    for key in row.settings:
        if key not in known:
            raise TwofoldError(f"{row.method} has no key '{key}', which the row {row.name} of {table.name} sets")
    shared = {setting.key: setting.value for setting in table.settings if setting.key in known}
    return shared | dict(row.settings)


def usual_of(method: str, data: str, given: Mapping[str, Any]) -> Config:
    """The defaults of a run, given the settings that decide other defaults: recipe parameters and the batch size."""
    known = schema(method)
    entry = find(method)
    defaults = defaults_of(data)
    layers = {
        "method": entry.recipe_for(resolve(known, {"user": given}).parameters),
        "data": {key: defaults[key] for key in defaults if key in known},
    }
    batch_size = resolve(known, layers | {"user": given}).batch_size
    return resolve(known, {"chosen": entry.by_batch(batch_size)} | layers)


def own_conditions(table: Table, row: Row) -> Conditions:
    """What a row is trained on unless the user changes it."""
    epochs = row.epochs or table.epochs
    if table.benchmark:
        return Conditions(table.data, str(row.settings.get("encoder", "")), epochs)
    return Conditions(table.data, encoder_of(table, row, {}), epochs)


def records_of(table: Table, row: Row, records: Mapping[str, Record]) -> dict[str, Record]:
    """The records of a row with any seed and data set, for its own number of epochs and the published ones.

    The network is that of the row, or one for which the paper has a number.
    """
    numbers = [each for values in row.published.values() for each in values]
    wanted = {row.epochs or table.epochs} | {each.epochs for each in numbers}
    networks = {own_conditions(table, row).encoder, *(each.encoder for each in numbers)}
    found = {}
    for name, record in records.items():
        values = record["config"]["values"]
        if values["method"] != row.method or values["epochs"] not in wanted or values["encoder"] not in networks:
            continue
        user = {"data": values["data"]} if values["data"] != table.data else {}
        for more in ({}, {"encoder": values["encoder"]}):
            if job_of(table, row, values["epochs"], values["seed"], user | more).name == name:
                found[name] = record
    return found
