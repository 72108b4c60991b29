"""`twofold search`."""

from pathlib import Path
from typing import Annotated

import typer

from twofold.cli.common import (
    USE,
    AdapterOption,
    ArchitectureOption,
    EncoderArgument,
    Images,
    SizeOption,
    ViewsOption,
    command,
    display_of,
    handle_interrupts,
)
from twofold.console import SafeConsole
from twofold.text import printable


@command(USE, examples="twofold search runs/frossl-photos-1 photos/ query.jpg", name="search")
def search_command(
    run: EncoderArgument,
    data: Images,
    query: Annotated[
        list[Path],
        typer.Argument(metavar="QUERY...", help="One or more image files to search with.", show_default=False),
    ],
    k: Annotated[
        int,
        typer.Option("-k", metavar="N", min=1, help="The number of images to list for each query.", show_default=True),
    ] = 10,
    encoder: ArchitectureOption = None,
    image_size: SizeOption = None,
    adapter: AdapterOption = True,
    views: ViewsOption = 1,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the results.")] = False,
) -> None:
    """Find the images in DATA that are most similar to each query image.

    Twofold keeps the features of DATA in its cache, so the next search is fast.
    """
    from twofold.verbs.search import search

    console = SafeConsole()
    with handle_interrupts():
        found = search(
            run,
            data,
            query,
            k=k,
            encoder=encoder,
            image_size=image_size,
            adapter=adapter,
            views=views,
            display=display_of(quiet),
        )
        for file, matches in zip(query, found, strict=True):
            lines = [str(file)]
            for rank, match in enumerate(matches, start=1):
                image = f"image {match.index}" if match.file is None else str(Path(data) / match.file)
                lines.append(f"{rank:>4}  {match.similarity:.4f}  {image}{f'  ({match.name})' if match.name else ''}")
            # A table would cut long names at the edge of the terminal. Markup would misread brackets in names.
            console.print(printable("\n".join(lines)), highlight=False, soft_wrap=True, markup=False)
