"""Turn what the code says about itself into reStructuredText, which autodoc expects.

The comment at the end of a dataclass field becomes its description. Docstrings have `code` in single backticks, and
formulas in plain text such as z*, |x| or x_. Single backticks become literals, and the characters that reStructuredText
would take for markup are escaped. Examples and indented blocks after `::` stay as they are.
"""

import inspect
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata

CODE = re.compile(r"(``.+?``|`[^`]+`)", re.DOTALL)
MARKUP = re.compile(r"(?<!\\)([*|]|(?<=\w)_(?=\W|$))", re.MULTILINE)


def escape(paragraph: str) -> str:
    """Return the paragraph with literals for code, and without markup elsewhere."""
    parts = CODE.split(paragraph)
    for place, part in enumerate(parts):
        if place % 2 == 0:
            parts[place] = MARKUP.sub(r"\\\1", part)
        else:
            # Markup must stand between spaces or punctuation: an escaped space, which is not shown, takes their place.
            code = part if part.startswith("``") else f"`{part}`"
            before = "\\ " if re.search(r"[^\s([{<'\"/:-]$", parts[place - 1]) else ""
            after = "\\ " if re.match(r"[^\s)\]}>'\"/:.,;!?-]", parts[place + 1]) else ""
            parts[place] = before + code + after
    return "".join(parts)


def indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def converted(lines: Sequence[str]) -> Iterator[str]:
    literal: int | None = None  # the indentation of the line that began a literal block
    paragraph: list[str] = []
    for line in lines:
        if literal is not None and line.strip() and indentation(line) <= literal:
            literal = None
        if line.strip() and literal is None and not line.lstrip().startswith((">>>", "... ")):
            paragraph.append(line)
            if line.rstrip().endswith("::"):
                literal = indentation(line)
            continue
        yield from escape("\n".join(paragraph)).split("\n") if paragraph else ()
        paragraph.clear()
        yield line
    yield from escape("\n".join(paragraph)).split("\n") if paragraph else ()


def describe_field(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:  # noqa: ARG001
    """Describe a field without a docstring by the comment at the end of its line."""
    if what == "attribute" and not any(lines):
        owner, _, field = name.rpartition(".")
        try:
            source = inspect.getsource(look_up(owner))
        except (AttributeError, OSError, TypeError):
            return
        found = re.search(rf"^    {field}: .*  # (?!noqa|type:)(.+)$", source, re.MULTILINE)
        lines[:] = [found.group(1)] if found else []


def look_up(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def convert(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:  # noqa: ARG001
    lines[:] = converted(lines)


def setup(app: Sphinx) -> ExtensionMetadata:
    app.connect("autodoc-process-docstring", describe_field, priority=90)
    app.connect("autodoc-process-docstring", convert, priority=100)  # before napoleon reads the sections
    return {"parallel_read_safe": True, "parallel_write_safe": True}
