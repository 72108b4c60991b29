"""`twofold methods`: the catalog."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from twofold.cli.common import TRAIN, command, names

EXAMPLES = """
twofold methods
twofold methods simclr
"""


@command(TRAIN, EXAMPLES)
def methods(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="The method whose settings to list.", show_default=False),
    ] = None,
) -> None:
    """List all methods, or the settings of one method."""
    from twofold.config import resolve
    from twofold.keys import describe, shown
    from twofold.methods import CATALOG, find, name_of_method, schema

    console = Console()
    if name is None:
        table = Table(names("method"), "family", "what it does", "paper", box=None, header_style="bold")
        for each in sorted(CATALOG.values(), key=lambda item: (item.family, item.name)):
            table.add_row(each.name, each.family, each.summary, each.paper)
        console.print(table)
        return
    name = name_of_method(name)
    recipe = find(name).recipe_for(resolve(schema(name), {}).parameters)
    others = [Column(title, overflow="fold") for title in ("default", "values", "meaning")]
    table = Table(names("key"), *others, box=None, header_style="bold")
    for key in sorted(schema(name).values(), key=lambda item: ("." in item.name, item.name)):
        table.add_row(key.name, shown(recipe.get(key.name, key.default)), describe(key.hint), key.help)
    console.print(f"[bold]{name}[/bold]: {find(name).summary} {find(name).paper}.", soft_wrap=True)
    console.print("Some datasets change these defaults. config.json in the run folder has all values and their origin.")
    console.print(table)
