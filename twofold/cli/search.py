"""`twofold search`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from twofold.cli.common import Images, RunArgument, app, display_of, handle_interrupts


@app.command("search")
def search_command(
    run: RunArgument,
    data: Images,
    query: Annotated[list[Path], typer.Argument(metavar="QUERY", help="Image files.", show_default=False)],
    k: Annotated[int, typer.Option("-k", min=1, help="How many images to show for each.")] = 10,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but what was found.")] = False,
) -> None:
    """Find the images nearest to others, with their cosine similarity. The next search among DATA is quick."""
    from twofold.verbs.search import search

    console = Console()
    with handle_interrupts():
        for file, matches in zip(query, search(run, data, query, k=k, display=display_of(quiet)), strict=True):
            lines = [str(file)]
            for rank, match in enumerate(matches, start=1):
                image = f"image {match.index}" if match.file is None else str(Path(data) / match.file)
                lines.append(f"{rank:>4}  {match.similarity:.4f}  {image}{f'  ({match.name})' if match.name else ''}")
            # Not a table, which would cut long names where the terminal ends; not as markup, since names have brackets.
            console.print("\n".join(lines), highlight=False, soft_wrap=True, markup=False)
