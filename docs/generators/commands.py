"""The command line: one page for each command, from the same texts as `--help`."""

from typing import Any

import typer

from generators.markdown import block, code, table, toctree
from twofold.cli import app

INTRODUCTION = """# Command line

`twofold COMMAND --help` shows the text of these pages in the terminal. `twofold --version` shows the version.

Commands that train or evaluate take settings as `key=value` words, such as `epochs=20`. [Configuration
keys](configuration.md) lists all of them.
"""


def commands() -> dict[str, Any]:
    """Return the commands of `twofold` by name, in the order of `twofold --help`."""
    return typer.main.get_command(app).commands  # type: ignore[attr-defined]


def pages() -> dict[str, str]:
    """Return the text of each page, by its path below docs/reference/."""
    found = {f"commands/{name}.md": page(name, command) for name, command in commands().items()}
    return {"commands.md": overview(), **found}


def overview() -> str:
    """Return the page that lists the commands, by purpose where they state one."""
    panels: dict[str, list[list[str]]] = {}
    for name, command in commands().items():
        link = f"[`twofold {name}`](commands/{name}.md)"
        panels.setdefault(panel_of(command), []).append([link, paragraphs(command.help)[0]])
    lines = [INTRODUCTION]
    for title, rows in panels.items():
        lines += [f"## {title}", "", *table(["command", "what it does"], rows), ""]
    lines += toctree(f"commands/{name}" for name in commands())
    return "\n".join(lines) + "\n"


def panel_of(command: Any) -> str:
    """Return the purpose under which `twofold --help` lists the command."""
    return command.rich_help_panel if isinstance(command.rich_help_panel, str) else "Commands"


def page(name: str, command: Any) -> str:
    arguments = [each for each in command.params if is_argument(each)]
    options = [each for each in command.params if not is_argument(each)]
    usage = " ".join(["twofold", name, "[OPTIONS]", *(each.metavar for each in arguments)])
    lines = [f"# twofold {name}", "", "\n\n".join(paragraphs(command.help)), "", *block([usage]), ""]
    if rows := [row for each in arguments for row in argument_rows(each)]:
        lines += ["## Arguments", "", *table(["argument", "meaning"], rows), ""]
    if options:
        lines += ["## Options", "", *table(["option", "meaning", "default"], map(option_row, options)), ""]
    if examples := examples_of(command):
        lines += ["## Examples" if len(examples) > 1 else "## Example", "", *block(examples), ""]
    return "\n".join(lines)


def is_argument(parameter: Any) -> bool:
    return parameter.param_type_name == "argument"


def argument_rows(argument: Any) -> list[list[str]]:
    """Return a row for each word of an argument, if the help has a paragraph for each, else a single row."""
    names, texts = argument.metavar.split(), paragraphs(argument.help)
    if len(names) != len(texts):
        names, texts = [argument.metavar], [" ".join(texts)]
    return [[code(name), text] for name, text in zip(names, texts, strict=True)]


def option_row(option: Any) -> list[str]:
    names = sorted(option.opts, key=len)
    value = f" {option.metavar}" if option.metavar else "" if option.is_flag else f" {option.name.upper()}"
    shown = [code(name + (value if name == names[-1] else "")) for name in names]
    return [", ".join(shown), " ".join(paragraphs(option.help)), default_text(option)]


def default_text(option: Any) -> str:
    """Return the default, which an option may state in words (`show_default="..."`)."""
    if isinstance(option.show_default, str):
        return option.show_default
    is_hidden = option.is_flag or not option.show_default or option.default in (None, "")
    return "" if is_hidden else code(str(option.default))


def examples_of(command: Any) -> list[str]:
    return [line.strip() for line in command.epilog.splitlines()] if isinstance(command.epilog, str) else []


def paragraphs(text: str) -> list[str]:
    return [" ".join(part.split()) for part in text.split("\n\n")]
