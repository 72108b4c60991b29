"""`twofold embed`."""

from pathlib import Path
from typing import Annotated

import typer

from twofold.cli.common import (
    USE,
    AdapterOption,
    ArchitectureOption,
    EncoderArgument,
    Images,
    Quiet,
    SizeOption,
    ViewsOption,
    command,
    display_of,
    handle_interrupts,
)

EXAMPLES = """
twofold embed runs/frossl-photos-1 photos/ --out features.npz
twofold embed runs/frossl-photos-1 photos/ --out features.csv
"""


@command(USE, EXAMPLES, name="embed")
def embed_command(
    run: EncoderArgument,
    data: Images,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="The .npz, .csv or .parquet file to write. For each image it has the features, the index and the "
            "split (train or test), and the label and the file name if there are any. Required.",
        ),
    ],
    encoder: ArchitectureOption = None,
    image_size: SizeOption = None,
    adapter: AdapterOption = True,
    views: ViewsOption = 1,
    quiet: Quiet = False,
) -> None:
    """Compute the features of images with a trained encoder and write them to a file."""
    from twofold.verbs.embed import embed

    display = display_of(quiet)
    with handle_interrupts():
        written = embed(
            run, data, out, encoder=encoder, image_size=image_size, adapter=adapter, views=views, display=display
        )
        display.say(f"wrote {written}")
