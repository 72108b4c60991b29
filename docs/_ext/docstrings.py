"""Turn what the code says about itself into reStructuredText, which autodoc expects.

The comment at the end of a field's line becomes its description. Docstrings have `code` in single backticks, and
formulas in plain text such as z*, |x| or x_. Single backticks become literals, and the characters that reStructuredText
would take for markup are escaped. Examples and indented blocks after `::` stay as they are.
"""

import dataclasses
import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Any

from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata

CODE = re.compile(r"(``.+?``|`[^`]+`)", re.DOTALL)
# An attribute such as encoder_ keeps its name at the start of its description.
MARKUP = re.compile(r"(?<!\\)([*|]|(?<=\w)_(?! : )(?=\W|$))", re.MULTILINE)
DTYPES = ("bool", "int64", "uint8", "float32", "float64")


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


def describe_fields(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:  # noqa: ARG001
    """Add a section with the fields of a class: name, type, and the comment at the end of the line."""
    if what != "class" or not (fields := described_fields(obj)):
        return
    lines += ["", "Attributes", "----------"]
    for field, (hint, text) in fields.items():
        lines += [f"{field} : {hint}", *([f"    {escape(text)}"] if text else [])]
    lines.append("")


def described_fields(cls: type) -> dict[str, tuple[str, str]]:
    """Return type and description of each field, unless the docstring describes the fields itself.

    A dataclass shows all its fields, another class those that have a comment.
    """
    hints = inspect.get_annotations(cls)
    if not hints or re.search(r"^(Attributes|Parameters)\n---", inspect.getdoc(cls) or "", re.MULTILINE):
        return {}
    comments = dict(re.findall(r"^    (\w+): .*  # (?!noqa|type:)(.+)$", inspect.getsource(cls), re.MULTILINE))
    return {
        field: (without_modules(hint), as_sentence(comments.get(field, "")))
        for field, hint in hints.items()
        if dataclasses.is_dataclass(cls) or field in comments
    }


def without_modules(hint: Any) -> str:
    """Return an annotation as text, with `Tensor` for `torch.Tensor`."""
    text = hint if isinstance(hint, str) else inspect.formatannotation(hint)
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", text).replace("'Method'", "Method")


def as_sentence(comment: str) -> str:
    """Return the comment with a capital letter and a full stop, unless it begins with a symbol or a shape."""
    start = re.match(r"[a-z]+(?= )", comment)
    first = comment[0].upper() if start and start.group() not in DTYPES else comment[:1]
    return f"{first}{comment[1:]}{'' if comment.endswith('.') else '.'}" if comment else ""


def convert(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:  # noqa: ARG001
    lines[:] = converted(lines)


def setup(app: Sphinx) -> ExtensionMetadata:
    # Both before napoleon reads the sections.
    app.connect("autodoc-process-docstring", convert, priority=100)
    app.connect("autodoc-process-docstring", describe_fields, priority=200)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
