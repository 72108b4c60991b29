"""The pages of the documentation, and the commands and Python snippets in them."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Pages in docs/reference are generated from the code when the site is built. test_docs_generated.py checks them.
WRITTEN = sorted(page for page in DOCS.rglob("*.md") if page.relative_to(DOCS).parts[0] != "reference")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *WRITTEN]
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
SHELL = ("", "bash")
INLINE = re.compile(r"(?<!`)`((?:twofold|python -m) [^`]+)`(?!`)")


@dataclass(frozen=True)
class Block:
    language: str
    text: str

    @property
    def lines(self) -> list[list[str]]:
        """The words of each shell command, without comments. A line that ends in a backslash continues."""
        lines = (shlex.split(line, comments=True) for line in self.text.replace("\\\n", " ").splitlines())
        return [words for words in lines if words]

    @property
    def commands(self) -> list[list[str]]:
        """The words after `twofold` in the commands of this block."""
        return [words[1:] for words in self.lines if words[0].endswith("twofold")]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[Block]:
    """The code blocks of a page, in their order. Shell blocks have the language "bash" or none."""
    found = (Block(language.strip(), text) for language, text in BLOCK.findall(page.read_text(encoding="utf-8")))
    return [block for block in found if block.language in languages]


def inline_commands(page: Path) -> list[str]:
    """Commands within a sentence or a table: `twofold ...` or `python -m ...`."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    return [" ".join(command.split()) for command in INLINE.findall(text)]
