"""The help of all commands: layout at two widths, texts and examples."""

import re
import shlex
from typing import Any, get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from twofold.cli import ORDER, app
from twofold.cli.common import PANELS
from twofold.methods import CATALOG

PROGRAM: Any = typer.main.get_command(app)
COMMANDS = PROGRAM.commands
WIDTHS = (80, 120)
each_command = pytest.mark.parametrize("name", COMMANDS)
each_width = pytest.mark.parametrize("width", WIDTHS)


def shown_help(*words: str, width: int = 80) -> str:
    """The output of `twofold WORDS --help` in a terminal of this width."""
    result = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": str(width)}, prog_name="twofold")
    assert result.exit_code == 0, result.output
    return result.output


def without_layout(text: str) -> str:
    return " ".join(re.sub("[│╭╮╰╯─]", " ", text).split())


def arguments_of(name: str) -> list[Any]:
    return [each for each in COMMANDS[name].params if each.param_type_name == "argument"]


def options_of(name: str) -> list[Any]:
    return [each for each in COMMANDS[name].params if each.param_type_name == "option"]


@each_width
def test_program_help_groups_commands_by_purpose(width: int) -> None:
    text = shown_help(width=width)
    titles = re.findall(r"╭─ (\w+) ─", text)
    assert titles == [*PANELS, "Options"]
    listed = re.findall(r"^│ ([a-z]+) ", text, flags=re.MULTILINE)
    assert listed == list(ORDER)
    assert set(ORDER) == COMMANDS.keys()
    for command in COMMANDS.values():
        panel = text[text.index(f"╭─ {command.rich_help_panel} ") :].partition("╰")[0]
        assert f"│ {command.name} " in panel


@each_command
def test_summary_is_one_sentence_that_begins_with_a_verb(name: str) -> None:
    summary = " ".join(COMMANDS[name].help.split("\n\n")[0].split())
    assert re.fullmatch(r"[A-Z][^.]*\.", summary.replace(".json", "").replace(".html", ""))
    verbs = "Adapt|Train|Resume|List|Classify|Measure|Write|Compute|Find|Export|Show|Check|Run"
    assert re.match(rf"({verbs}) ", summary)
    assert summary in without_layout(shown_help(name, width=120))
    assert summary in without_layout(shown_help(width=120))


@each_command
def test_every_parameter_has_a_metavar_and_sentences(name: str) -> None:
    for parameter in [*arguments_of(name), *options_of(name)]:
        is_flag = getattr(parameter, "is_flag", False)
        assert bool(parameter.metavar) != is_flag, parameter.opts
        for paragraph in parameter.help.split("\n\n"):
            assert paragraph[0].isupper() or paragraph[0] == "`", paragraph
            assert paragraph.endswith("."), paragraph


def test_every_option_states_its_name() -> None:
    # A name that Typer derives depends on Typer's version.
    stated = []
    for command in app.registered_commands:
        for kind in get_type_hints(command.callback, include_extras=True).values():
            for option in getattr(kind, "__metadata__", ()):
                if isinstance(option, typer.models.OptionInfo):
                    # In an annotation, the first name is where a default would be.
                    assert str(option.default).startswith("-"), f"{command.callback}: {option.help}"
                    stated.append(option)
    options = [option for name in COMMANDS for option in options_of(name) if option.name != "help"]
    assert len(stated) == len(options)


@each_width
@pytest.mark.parametrize("words", [(), *((name,) for name in COMMANDS)], ids=" ".join)
def test_help_shows_no_python_types_and_cuts_nothing(words: tuple[str, ...], width: int) -> None:
    text = shown_help(*words, width=width)
    for unwanted in ("<", "LIST[", "list[", "TEXT", "BOOLEAN", "INTEGER", "[required]", "[[", "{", "…"):
        assert unwanted not in text
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert all(len(line) == width for line in lines if line.startswith(("│", "╭", "╰")))
    assert "  " not in without_layout(text)


@each_command
def test_usage_line_has_the_arguments_as_a_user_types_them(name: str) -> None:
    usage = " ".join(["Usage: twofold", name, "[OPTIONS]", *(each.metavar for each in arguments_of(name))])
    assert usage in shown_help(name, width=120)
    for argument in arguments_of(name):
        assert argument.required != argument.metavar.startswith("[")


@each_width
@each_command
def test_options_are_listed_with_their_metavar_on_one_line(name: str, width: int) -> None:
    text = shown_help(name, width=width)
    for option in options_of(name):
        long = next((each for each in option.opts if each.startswith("--")), option.opts[0])
        assert re.search(rf"^│ .*{long}{f' {option.metavar}' if option.metavar else ''} ", text, flags=re.MULTILINE)


@each_command
def test_defaults_are_shown(name: str) -> None:
    text = without_layout(shown_help(name, width=120))
    for option in options_of(name):
        if not option.is_flag and option.default not in (None, ""):
            assert f"[default: {option.default}]" in text


@each_command
def test_examples_parse_and_fit_80_columns(name: str) -> None:
    examples = COMMANDS[name].epilog.splitlines()
    assert 1 <= len(examples) <= 2
    text = shown_help(name)
    for example in examples:
        assert example in text.splitlines()
        program, verb, *words = shlex.split(example)
        assert (program, verb) == ("twofold", name)
        PROGRAM.commands[name].make_context(name, words)  # raises if an option is unknown or an argument is missing


def test_methods_and_keys_in_examples_exist() -> None:
    for command in COMMANDS.values():
        for method in re.findall(r"(?:--method|methods) (\S+)", command.epilog):
            assert method in CATALOG


def test_misspelled_command_suggests_the_nearest_one() -> None:
    result = CliRunner().invoke(app, ["pretrian"], prog_name="twofold")
    assert result.exit_code == 2
    assert "Did you mean 'pretrain'?" in without_layout(result.output)


def test_error_for_a_missing_argument_uses_its_name_in_the_help() -> None:
    result = CliRunner().invoke(app, ["probe"], prog_name="twofold")
    assert result.exit_code == 2
    assert "Usage: twofold probe [OPTIONS] RUN [DATA]" in result.output
    assert "Missing argument 'RUN'" in without_layout(result.output)
