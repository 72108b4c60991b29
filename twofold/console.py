"""`SafeConsole`: prints names from files without their control characters, and survives a closed pipe."""

from collections.abc import Iterable
from contextlib import suppress

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from twofold.text import printable


class SafeConsole(Console):
    """A console that escapes control characters, which could move the cursor or hide text, in all that it prints.

    Styles and progress bars are not text, so they are not affected. A closed pipe, as after `| head`, is ignored: rich
    would exit, in the middle of training.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        with suppress(SystemExit):
            super().on_broken_pipe()
