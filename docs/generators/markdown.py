"""Small pieces of Markdown."""

import re
from collections.abc import Callable, Iterable, Sequence

# Characters that Markdown would take for markup: formulas such as L*_scl have them.
MARKUP = re.compile(r"[\\*$<>\[\]~^]|(?<!\w)_|_(?!\w)")
CODE = re.compile(r"(`[^`]*`)")


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table. Cells may hold any text except line breaks."""
    return [f"| {' | '.join(map(escape, line))} |" for line in (titles, ["---"] * len(titles), *rows)]


def escape(cell: str) -> str:
    return cell.replace("|", "\\|")


def literal(text: str) -> str:
    """Return the text such that Markdown shows it as it is. Code between backticks stays code."""
    return outside_code(lambda part: MARKUP.sub(r"\\\g<0>", part), text)


def outside_code(change: Callable[[str], str], text: str) -> str:
    """Return the text with a change of all parts that are not between backticks."""
    parts = CODE.split(text)
    parts[::2] = map(change, parts[::2])
    return "".join(parts)


def code(text: str) -> str:
    """Return the text as code, also if it holds backticks."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}"


def block(lines: Iterable[str], language: str = "") -> list[str]:
    return [f"```{language}", *lines, "```"]


def toctree(names: Iterable[str]) -> list[str]:
    """Return a table of contents that only the sidebar shows."""
    return ["```{toctree}", ":hidden:", "", *names, "```"]
