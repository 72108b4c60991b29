"""Render mathematics as MathML when the site is built, so that pages need no script and no font."""

from xml.etree import ElementTree

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata
from sphinx.writers.html5 import HTML5Translator

NAMESPACE = "{http://www.w3.org/1998/Math/MathML}"
LIMITS = {"msub": "munder", "msup": "mover", "msubsup": "munderover"}
ElementTree.register_namespace("", NAMESPACE.strip("{}"))


def visit_inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(f'<span class="math">{convert(node.astext())}</span>')
    raise nodes.SkipNode


def visit_block(translator: HTML5Translator, node: nodes.math_block) -> None:
    identifier = f' id="{node["ids"][0]}"' if node["ids"] else ""
    label = node.get("number")
    number = f'<span class="eqno">({label})</span>' if label else ""
    translator.body.append(f'<div class="math"{identifier}>{number}{as_block(node.astext())}</div>')
    raise nodes.SkipNode


def as_block(latex: str) -> str:
    """Return a displayed formula. latex2mathml puts the limits of a sum within brackets at its side: move them."""
    tree = ElementTree.fromstring(convert(latex, display="block"))
    for element in tree.iter():
        kind = element.tag.removeprefix(NAMESPACE)
        if kind in LIMITS and element[0].text in ("∑", "∏"):
            element.tag = NAMESPACE + LIMITS[kind]
    return ElementTree.tostring(tree, encoding="unicode")


def setup(app: Sphinx) -> ExtensionMetadata:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
