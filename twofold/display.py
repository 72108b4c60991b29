"""`Display`: progress bars in a terminal, plain lines in log files, and nothing if it is quiet.

Every verb takes a `Display`. By default, the display is quiet in Python.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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

from twofold.console import SafeConsole
from twofold.text import printable

PLAIN_SECONDS = 10.0  # the least time between two plain lines, so that a log file stays readable
WIDE = 120  # a terminal with this many columns or more has a long bar; in others, the values next to it need the room


class Stage:
    """The progress of one task. Call it with (done, total) to move the bar. `total` is None if it is not known."""

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
        """Show values next to the bar, or print a line if enough time has passed."""
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
    """The values next to the bar, on one line."""

    def render(self, task: Task) -> Text:
        return Text(task.fields["note"], no_wrap=True, overflow="ellipsis")


class Display:
    """Prints messages and progress. With `quiet`, it prints nothing; errors are still raised."""

    def __init__(self, quiet: bool = False, console: Console | None = None):
        self.quiet = quiet
        self.console = console or SafeConsole()

    def say(self, text: object = "") -> None:
        if not self.quiet:
            # Escaped before it is wrapped. Without markup, because a path may contain brackets.
            text = printable(text) if isinstance(text, str) else text
            self.console.print(text, highlight=False, soft_wrap=True, markup=False)

    @contextmanager
    def stage(self, title: str, total: int | None, *, keep: bool = False) -> Iterator[Stage]:
        """Show a progress bar for one task. The bar disappears at the end unless `keep` is true."""
        if self.quiet or not self.console.is_terminal:
            yield Stage(title, total, None, None if self.quiet else self.console)
            return
        uncut = [Column(no_wrap=True) for _ in range(4)]  # in a narrow terminal, only the note is cut
        name = TextColumn("{task.description}", table_column=uncut[0])
        bar = BarColumn(bar_width=24 if self.console.width >= WIDE else 10, table_column=uncut[1])
        times: tuple[ProgressColumn, ...] = (TimeElapsedColumn(table_column=uncut[2]),)
        if total is not None:
            times = (MofNCompleteColumn(table_column=uncut[2]), TimeRemainingColumn(table_column=uncut[3]))
        columns = (name, bar, *times, Note())
        with Progress(*columns, console=self.console, transient=not keep) as progress:
            yield Stage(title, total, progress, self.console)


def status_line(metrics: Sequence[Mapping[str, Any]]) -> str:
    """Describe the state of a run in one line, from its metrics so far.

    For metrics that are not measured at every step, it shows the last value. The most important metrics come first,
    because a narrow terminal cuts the end.
    """
    now, parts = metrics[-1], []
    last = next((line for line in reversed(metrics) if "online_accuracy" in line), None)
    if last is not None:
        epoch = "" if last is now else f" (epoch {last['epoch']:g})"
        parts.append(f"online {100 * last['online_accuracy']:.1f} %{epoch}")
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
