"""The layout of `--help`: usage, summary, arguments, options, commands by purpose, and examples.

Typer's own layout shows Python types such as `<list[str]>` and `<bool>`. This layout shows the metavar of each argument
and option, exactly as the command states it.
"""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

NAME, METAVAR, CODE, DIM = "bold cyan", "yellow", "cyan", "dim"


class Command(TyperCommand):
    """A command with the help layout of this module. Its epilog has one example in each line."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return usage_pieces(self, ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 (Typer passes a formatter)
        print_help(self, ctx)


class Program(TyperGroup):
    """The program `twofold` with the help layout of this module: one panel of commands for each purpose."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*usage_pieces(self, ctx), self.subcommand_metavar]

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 (Typer passes a formatter)
        print_help(self, ctx, [self.commands[name] for name in self.list_commands(ctx)])


def usage_pieces(command: Any, ctx: Any) -> list[str]:
    """Return what follows the command's name in the usage line: `[OPTIONS]` and the arguments."""
    return ["[OPTIONS]", *(each.metavar for each in command.get_params(ctx) if is_argument(each))]


def print_help(command: Any, ctx: Any, subcommands: Sequence[Any] = ()) -> None:
    """Print the help of a command, or of the program with its subcommands."""
    console = Console(highlight=False)
    parameters = command.get_params(ctx)
    panels: dict[str, list[tuple[Text, Text]]] = {}
    width = max((len(each.name) for each in subcommands), default=0)
    for each in subcommands:
        row = Text(each.name.ljust(width), NAME), prose(paragraphs(each.help)[0])
        panels.setdefault(each.rich_help_panel, []).append(row)
    panels["Arguments"] = [row for each in parameters if is_argument(each) for row in argument_rows(each)]
    panels["Options"] = [option_row(each) for each in parameters if not is_argument(each)]
    console.print(Padding(Text(command.get_usage(ctx), "bold"), 1))
    for paragraph in paragraphs(command.help):
        console.print(Padding(prose(paragraph), (0, 1, 1, 1)))
    for title, rows in panels.items():
        if rows:
            console.print(Panel(as_table(rows), title=title, title_align="left", border_style=DIM))
    if command.epilog:
        console.print(Padding(Text("Examples:", "bold"), (1, 1, 0, 1)))
        # Never wrapped, so that an example can be copied.
        console.print(Text(command.epilog, CODE), soft_wrap=True)


def as_table(rows: list[tuple[Text, Text]]) -> Table:
    """Return two columns: names, which are never cut, and their descriptions."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for row in rows:
        table.add_row(*row)
    return table


def is_argument(parameter: Any) -> bool:
    return parameter.param_type_name == "argument"


def argument_rows(argument: Any) -> list[tuple[Text, Text]]:
    """Return one row, or a row for each word of the metavar if the help has a paragraph for each."""
    names, texts = argument.metavar.split(), paragraphs(argument.help)
    if len(names) != len(texts):
        names, texts = [argument.metavar], [argument.help]
    return [(Text(name, METAVAR), prose(text)) for name, text in zip(names, texts, strict=True)]


def option_row(option: Any) -> tuple[Text, Text]:
    short, long = (
        "".join(name for name in option.opts if name.startswith("--") == is_long) for is_long in (False, True)
    )
    name = Text(f"{short}, {long}" if short and long else short or f"    {long}", NAME)
    if option.metavar:
        name.append(f" {option.metavar}", METAVAR)
    text = prose(option.help)
    if default := default_text(option):
        text.append(f" [default: {default}]", DIM)
    return name, text


def default_text(option: Any) -> str:
    """Return the default, which an option that has none to show may state in words (`show_default="..."`)."""
    if isinstance(option.show_default, str):
        return option.show_default
    return "" if option.is_flag or not option.show_default or option.default is None else str(option.default)


def paragraphs(text: str) -> list[str]:
    return text.split("\n\n")


def prose(text: str) -> Text:
    """Return a text without line breaks, in which code between backticks is coloured."""
    styled = Text(" ".join(text.split()))
    styled.highlight_regex("`[^`]+`", CODE)
    return styled
