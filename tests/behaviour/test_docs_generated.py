"""The generated pages of the documentation are complete and up to date."""

import re
import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from generators import api, commands, committed, configuration, mathematics, methods, paths, site, theory
from twofold.config import RUN_KEYS
from twofold.methods import CATALOG, schema
from twofold_papers.verify.claim import PAPERS
from twofold_papers.verify.figure import figures

COMMAND = "run: python docs/generate.py"
EXAMPLES = [(name, line) for name, each in commands.commands().items() for line in commands.examples_of(each)]


@pytest.fixture(scope="module")
def quick_files() -> dict[Path, str]:
    return committed.quick_files()


def test_results_benchmarks_figures_and_readme_are_up_to_date(quick_files: dict[Path, str]) -> None:
    for path, text in quick_files.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: {COMMAND}"


def test_figures_folder_contains_only_generated_figures(quick_files: dict[Path, str]) -> None:
    assert set(paths.FIGURES.iterdir()) <= quick_files.keys()


def test_errata_are_up_to_date() -> None:
    assert (paths.DOCS / "errata.md").read_text(encoding="utf-8") == committed.errata_page(), COMMAND


@pytest.mark.parametrize("paper", PAPERS)
def test_page_of_a_paper_has_every_figure(paper: str) -> None:
    page = theory.page(paper)
    for figure in figures(paper):
        assert f"### {figure.number}" in page
        assert theory.picture_of(figure).is_file(), COMMAND


def test_every_public_name_is_on_a_page_of_the_api() -> None:
    for page in api.PAGES:
        public = set(getattr(import_module(page.module), "__all__", ())) - api.WITHOUT_ENTRY.get(page.module, set())
        assert page.module == "twofold.models" or public <= set(page.names), public - set(page.names)
        for name in page.names:
            assert api.look_up(page.module, name) is not None


def test_every_run_key_is_listed_in_exactly_one_topic() -> None:
    listed = [name for names in configuration.TOPICS.values() for name in names]
    assert sorted(listed) == sorted(name for name in RUN_KEYS if "." not in name)
    (page,) = configuration.pages().values()
    for name in {key for method in CATALOG for key in schema(method) if key in RUN_KEYS or "." in key}:
        assert f"`{name}`{{#{configuration.target_of(name)}}}" in page


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_page_of_a_method_states_formula_keys_and_recipe(name: str) -> None:
    page, entry = methods.page(CATALOG[name]), CATALOG[name]
    assert f"$$\n{entry.latex}\n$$" in page
    for key in schema(name).keys() - RUN_KEYS.keys():
        assert f"| `{key}`" in page
    recipe = entry.recipe if not callable(entry.recipe) else {}
    for key in recipe:
        assert f"`{key}`" in page


def test_symbols_become_mathematics_and_prose_does_not() -> None:
    text = "z_vn is the embedding of view v; d_ij² and z̄_v as in W-MSE. A row has `a_b`, i.e. row i's view."
    expected = (
        "$z_{vn}$ is the embedding of view $v$; $d_{ij}^2$ and $\\bar{z}_{v}$ as in W-MSE. A row has `a_b`, i.e. "
        "row $i$'s view."
    )
    assert mathematics.with_mathematics(text) == expected


def test_every_command_has_a_page_with_all_options_and_an_example() -> None:
    pages = commands.pages()
    for name, command in commands.commands().items():
        page = pages[f"commands/{name}.md"]
        for option in (each for each in command.params if not commands.is_argument(each)):
            assert all(re.search(rf"`{spelling}[ `]", page) for spelling in option.opts)
        assert "## Example" in page, name


@pytest.mark.parametrize("name, line", EXAMPLES, ids=[line for _, line in EXAMPLES])
def test_examples_of_commands_parse(name: str, line: str) -> None:
    program, command, *words = shlex.split(line)
    assert (program, command) == ("twofold", name)
    commands.commands()[name].make_context(name, words)


def test_pages_of_removed_methods_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake: Any = type("fake", (), {"pages": staticmethod(lambda: {"methods/one.md": "1", "methods.md": "all"})})
    monkeypatch.setattr(site, "GENERATORS", (fake,))
    (tmp_path / "reference" / "methods").mkdir(parents=True)
    (tmp_path / "reference" / "methods" / "two.md").write_text("2")
    site.write(tmp_path)
    written = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.md"))
    assert written == ["reference/methods.md", "reference/methods/one.md"]
