"""What a person sees while something runs: a live line in a terminal, plain lines elsewhere, nothing when quiet.

Every verb takes a `Display`; Python callers get a quiet one.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

PLAIN_SECONDS = 10.0  # between plain lines: a log file should stay readable
WIDE = 120  # columns from which a bar may be long: in fewer, the values beside it need the room


class Stage:
    """One piece of work, its length None where it is not known. Calling it with (done, total) moves the bar."""

    def __init__(self, title: str, total: int | None, bar: Progress | None, console: Console | None):
        self.title, self.total, self.bar, self.console = title, total, bar, console
        self.task: TaskID | None = None if bar is None else bar.add_task(title, total=total, note="")
        self.spoke = time.monotonic()
        self.values = ""

    def __call__(self, done: int, total: int | None = None) -> None:
        if total is not None:
            self.total = total
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, completed=done, total=self.total)
        elif time.monotonic() - self.spoke >= PLAIN_SECONDS:
            self._speak(done, self.values)

    def note(self, done: int, values: str) -> None:
        """Say how it goes: beside the bar, or as a line when it is time for one."""
        self.values = values
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, completed=done, note=values)
        elif done == self.total or time.monotonic() - self.spoke >= PLAIN_SECONDS:
            self._speak(done, values)

    def _speak(self, done: int, values: str) -> None:
        self.spoke = time.monotonic()
        if self.console is not None:
            line = f"{self.title}: {done}/{self.total}  {values}".rstrip()
            self.console.print(line, highlight=False, soft_wrap=True, markup=False)


class Note(ProgressColumn):
    """What is said beside the bar, on one line."""

    def render(self, task: Task) -> Text:
        return Text(task.fields["note"], no_wrap=True, overflow="ellipsis")


class PipeSafeConsole(Console):
    """Falls silent where nobody listens any more, as after `| head`, where rich would end the program in training."""

    def on_broken_pipe(self) -> None:
        with suppress(SystemExit):
            super().on_broken_pipe()


class Display:
    """Where a command speaks to its user. `quiet` leaves errors alone."""

    def __init__(self, quiet: bool = False, console: Console | None = None):
        self.quiet = quiet
        self.console = console or PipeSafeConsole()

    def say(self, text: object = "") -> None:
        if not self.quiet:
            # Not as markup: a path may have brackets.
            self.console.print(text, highlight=False, soft_wrap=True, markup=False)

    @contextmanager
    def stage(self, title: str, total: int | None, *, keep: bool = False) -> Iterator[Stage]:
        """A piece of work; its bar goes away with it, unless it is to be kept."""
        if self.quiet or not self.console.is_terminal:
            yield Stage(title, total, None, None if self.quiet else self.console)
            return
        whole = [Column(no_wrap=True) for _ in range(4)]  # in a narrow terminal the note is cut, and nothing else
        name = TextColumn("{task.description}", table_column=whole[0])
        bar = BarColumn(bar_width=24 if self.console.width >= WIDE else 10, table_column=whole[1])
        place: tuple[ProgressColumn, ...] = (TimeElapsedColumn(table_column=whole[2]),)
        if total is not None:
            place = (MofNCompleteColumn(table_column=whole[2]), TimeRemainingColumn(table_column=whole[3]))
        columns = (name, bar, *place, Note())
        with Progress(*columns, console=self.console, transient=not keep) as progress:
            yield Stage(title, total, progress, self.console)


def status_line(metrics: Sequence[Mapping[str, Any]]) -> str:
    """How a run goes, from its lines so far: what is measured now and then is said as it was last.

    First what says most: a narrow terminal cuts the end.
    """
    now, parts = metrics[-1], []
    look = next((line for line in reversed(metrics) if "online_accuracy" in line), None)
    if look is not None:
        then = "" if look is now else f" (epoch {look['epoch']:g})"
        parts.append(f"online {100 * look['online_accuracy']:.1f} %{then}")
    elif "online_train_accuracy" in now:
        parts.append(f"training views {100 * now['online_train_accuracy']:.1f} %")
    rank = next((line["effective_rank"] for line in reversed(metrics) if "effective_rank" in line), None)
    if rank is not None:
        parts.append(f"rank {rank:.1f}")
    loss = f"loss {now['loss']:.4g}"
    terms = {name.removeprefix("loss/"): value for name, value in now.items() if name.startswith("loss/")}
    if len(terms) > 1:
        loss += " (" + ", ".join(f"{name} {value:.4g}" for name, value in terms.items()) + ")"
    return " · ".join([*parts, loss])
