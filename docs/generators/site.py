"""Write the reference pages that follow from the code into docs/reference/, where Git ignores them."""

from pathlib import Path

from generators import api, commands, configuration, methods, theory

GENERATORS = (commands, configuration, methods, api, theory)


def write(docs: Path) -> None:
    """Write all pages that changed, and remove pages of commands and methods that are gone."""
    pages = {docs / "reference" / path: text for each in GENERATORS for path, text in each.pages().items()}
    for path in docs.glob("reference/*/*.md"):
        if path not in pages:
            path.unlink()
    for path, text in pages.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
