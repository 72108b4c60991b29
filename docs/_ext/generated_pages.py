"""Write the reference pages before Sphinx looks for pages. They are not committed, since they follow from the code."""

from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata

from generators import site


def write_pages(app: Sphinx) -> None:
    site.write(Path(app.srcdir))


def setup(app: Sphinx) -> ExtensionMetadata:
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
