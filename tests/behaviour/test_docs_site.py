"""The documentation builds without warnings, and the site works without a network."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from twofold_papers.verify.claim import PAPERS, claims

pytest.importorskip("sphinx", reason="Sphinx is not installed: pip install -e '.[docs]'")

ROOT = Path(__file__).parents[2]
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "video": "src"}
STYLE_ADDRESS = re.compile(r"""(?:url\(|@import)\s*['"]?(?:https?:)?//""")


class Addresses(HTMLParser):
    """What a browser loads to show a page. Links that readers follow do not count."""

    def __init__(self, page: Path):
        super().__init__()
        self.loaded: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in LOADED:
            self.loaded += [value for name, value in attributes if name == LOADED[tag] and value]


class Text(HTMLParser):
    """The text that a page shows."""

    def __init__(self, page: Path):
        super().__init__()
        self.parts: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_data(self, data: str) -> None:
        self.parts.append(data)

    def __str__(self) -> str:
        return "".join(self.parts)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    out = tmp_path_factory.mktemp("docs")
    options = ["--builder", "html", "--fail-on-warning", "--keep-going", "--quiet"]
    command = [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(out)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return out


def test_no_page_loads_anything_from_the_network(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 80
    for page in pages:
        remote = [address for address in Addresses(page).loaded if re.match(r"(https?:)?//", address)]
        assert not remote, f"{page.relative_to(site)} loads {remote}"
        assert not STYLE_ADDRESS.search(page.read_text(encoding="utf-8"))
    for style in site.rglob("*.css"):
        assert not STYLE_ADDRESS.search(style.read_text(encoding="utf-8")), style


def test_everything_that_pages_load_is_part_of_the_site(site: Path) -> None:
    for page in site.rglob("*.html"):
        for address in Addresses(page).loaded:
            if not address.startswith("data:") and not address.startswith("#"):
                assert (page.parent / address.partition("?")[0].partition("#")[0]).exists(), f"{page}: {address}"


def test_search_index_contains_pages_of_every_kind(site: Path) -> None:
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    pages = set(index["docnames"])
    assert {"index", "methods", "reference/methods/simclr", "reference/commands/pretrain", "changelog"} <= pages
    assert "reference/api/twofold" in pages
    assert "barlow" in index["terms"]


def test_mathematics_is_rendered_as_mathml(site: Path) -> None:
    page = (site / "reference" / "methods" / "simclr.html").read_text(encoding="utf-8")
    assert '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">' in page
    assert "\\sum" not in page


def test_api_shows_parameters_of_public_functions(site: Path) -> None:
    page = (site / "reference" / "api" / "twofold.html").read_text(encoding="utf-8")
    assert 'id="twofold.pretrain"' in page
    assert 'id="twofold.Run.results"' in page


@pytest.mark.parametrize("paper", PAPERS)
def test_page_of_a_paper_shows_every_claim_as_it_is_written(site: Path, paper: str) -> None:
    text = str(Text(site / "reference" / "theory" / f"{paper}.html"))
    for claim in claims(paper):
        for statement in filter(None, (claim.number, claim.statement, claim.published_form)):
            assert statement.replace("`", "").rstrip(".") in text


def test_errata_show_both_forms_as_they_are_written(site: Path) -> None:
    text = str(Text(site / "errata.html"))
    for claim in (claim for claim in claims() if claim.published_form):
        for form in (claim.number, claim.published_form, claim.statement.partition(" Checked: ")[0]):
            assert form.replace("`", "").rstrip(".") in text
