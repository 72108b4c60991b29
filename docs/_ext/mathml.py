"""Render mathematics as MathML when the site is built, so that pages need no script and no font."""

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata
from sphinx.writers.html5 import HTML5Translator


def visit_inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(f'<span class="math">{convert(node.astext())}</span>')
    raise nodes.SkipNode


def visit_block(translator: HTML5Translator, node: nodes.math_block) -> None:
    label = node.get("number")
    number = f'<span class="eqno">({label})</span>' if label else ""
    formula = convert(node.astext(), display="block")
    translator.body.append(f'<div class="math"{identifier(node)}>{number}{formula}</div>')
    raise nodes.SkipNode


def identifier(node: nodes.Element) -> str:
    return f' id="{node["ids"][0]}"' if node["ids"] else ""


def setup(app: Sphinx) -> ExtensionMetadata:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
