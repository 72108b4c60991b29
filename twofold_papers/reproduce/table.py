"""A paper's table as runs: rows of configurations, what is printed for each, and what is read from its record."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twofold.config import Config, flat, resolve
from twofold.data.open import defaults_of, location_of
from twofold.errors import TwofoldError
from twofold.keys import coerce
from twofold.methods import find, schema
from twofold.verbs.choose import warm_up
from twofold_papers.reproduce.readings import Column
from twofold_papers.reproduce.record import Record, record_name


@dataclass(frozen=True)
class Setting:
    """A value of the configuration, and where it is printed."""

    key: str
    value: Any
    source: str


@dataclass(frozen=True)
class Printed:
    """A published number; `epochs` where the paper says after how many it was measured."""

    value: float
    sd: float | None = None
    epochs: int | None = None
    note: str = ""


@dataclass(frozen=True)
class Probe:
    """One more linear probe of a finished run: on other images, or on the projector's output."""

    name: str
    data: str | None = None  # none: the run's own
    projected: bool = False


@dataclass(frozen=True)
class Row:
    """A line of a table: one configuration, run with one or more seeds."""

    name: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    printed: Mapping[str, Sequence[Printed]] = field(default_factory=dict)  # by the title of a column
    epochs: int | None = None  # its own number, where it is not the table's
    probes: Sequence[Probe] = ()  # alike for all rows, of any table, that are one run
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """A picture of a table's runs, drawn from what their records hold, each by what a reader calls it."""

    name: str
    needs: str  # what of a record is drawn: a run whose record has none of it is left out
    draw: Callable[[Sequence[tuple[str, Record]]], str]


@dataclass(frozen=True)
class Table:
    """`settings` hold for all rows whose method knows the key, as far as the method's own recipe says otherwise.

    `differs`: what is not as it was in print. `findings`: what the records show, in words; "" before there are any.
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
    findings: str = ""
    data: str = "cifar10"
    benchmark: str = ""  # in whose results the rows are found, by their settings, where they are not runs
    command: str = ""  # that measures them
    figures: Sequence[Figure] = ()

    def is_printed(self, column: Column) -> bool:
        """Whether there is anything in print to set beside ours."""
        return any(row.printed.get(column.title) for row in self.rows)


@dataclass(frozen=True)
class Job:
    """One run of a table, by the name that its record will have. `refused` says why it cannot be."""

    table: Table
    row: Row
    epochs: int
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
    """All rows with the first seed, then all with the second, …"""
    rows = [] if table.benchmark else list(rows)
    return [
        job_of(table, row, epochs or row.epochs or table.epochs, seed, user or {}) for seed in seeds for row in rows
    ]


def job_of(table: Table, row: Row, epochs: int, seed: int, user: Mapping[str, Any]) -> Job:
    try:
        keys = keys_of(table, row, epochs, seed, user)
        config = resolve(schema(row.method), {"user": keys})
    except TwofoldError as error:
        return Job(table, row, epochs, seed, refused=str(error))
    return Job(table, row, epochs, seed, keys, record_name({"values": flat(config), "origin": config.origin}))


def keys_of(table: Table, row: Row, epochs: int, seed: int, user: Mapping[str, Any]) -> dict[str, Any]:
    """What has to be asked for: what differs from the method's recipe and the data's defaults, as a record's name has
    it. A run with seed 0 asks for none."""
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
    """What is printed: the row's own values before the table's."""
    known = schema(row.method)
    for key in row.settings:
        if key not in known:
            raise TwofoldError(f"{row.method} has no key '{key}' yet, which {table.name} needs for {row.name}")
    shared = {setting.key: setting.value for setting in table.settings if setting.key in known}
    return shared | dict(row.settings)


def usual_of(method: str, data: str, given: Mapping[str, Any]) -> Config:
    """What a run does that is asked for nothing but what decides the rest: parameters of its recipe, the batch size."""
    known = schema(method)
    entry = find(method)
    defaults = defaults_of(data)
    layers = {
        "method": entry.recipe_for(resolve(known, {"user": given}).parameters),
        "data": {key: defaults[key] for key in defaults if key in known},
    }
    batch_size = resolve(known, layers | {"user": given}).batch_size
    return resolve(known, {"chosen": entry.by_batch(batch_size)} | layers)


def records_of(table: Table, row: Row, records: Mapping[str, Record]) -> dict[str, Record]:
    """Those of a row with the epochs that are printed or its own, whatever their seed."""
    wanted = {row.epochs or table.epochs} | {each.epochs for values in row.printed.values() for each in values}
    found = {}
    for name, record in records.items():
        values = record["config"]["values"]
        likely = values["method"] == row.method and values["epochs"] in wanted and values["data"] == table.data
        if likely and job_of(table, row, values["epochs"], values["seed"], {}).name == name:
            found[name] = record
    return found
