"""Small pieces of Markdown."""

from collections.abc import Iterable, Sequence


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table. Cells may hold any text except line breaks."""
    return [f"| {' | '.join(map(escape, line))} |" for line in (titles, ["---"] * len(titles), *rows)]


def escape(cell: str) -> str:
    return cell.replace("|", "\\|")


def code(text: str) -> str:
    """Return the text as code, also if it holds backticks."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}"


def block(lines: Iterable[str], language: str = "") -> list[str]:
    return [f"```{language}", *lines, "```"]


def toctree(names: Iterable[str]) -> list[str]:
    """Return a table of contents that only the sidebar shows."""
    return ["```{toctree}", ":hidden:", "", *names, "```"]
