"""Parts of SVG pictures: a white sheet, text, and a legend below the panels."""

from collections.abc import Iterable, Sequence
from html import escape

GAP = 24  # space between and around panels, in pixels
LETTER = 6  # approximate width of a letter in a legend, in pixels


def sheet(width: int, height: int, parts: Iterable[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="system-ui, sans-serif" fill="#222">\n'
        f'<rect width="{width}" height="{height}" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def text(x: float, y: float, words: str, size: int, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}"{more}>{escape(words)}</text>'


def legend(entries: Sequence[tuple[str, str]], width: int, top: int) -> tuple[list[str], int]:
    """A square and a name for each (name, colour), in several lines if needed; and the position of the last line."""
    parts = []
    x, y = GAP, top
    for name, colour in entries:
        room = 30 + LETTER * len(name)
        if x + room > width and x > GAP:
            x, y = GAP, y + 18
        parts.append(f'<rect x="{x}" y="{y - 8}" width="9" height="9" fill="{colour}"/>')
        parts.append(text(x + 13, y, name, 11))
        x += room
    return parts, y
