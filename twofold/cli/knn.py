"""`twofold knn`."""

from typing import Annotated

import typer

from twofold.cli.common import (
    EVALUATE,
    AdapterOption,
    ArchitectureOption,
    EncoderArgument,
    OutOption,
    Quiet,
    SizeOption,
    ViewsOption,
    command,
    display_of,
    handle_interrupts,
    refuse_unwritable_json,
)
from twofold.cli.probing import DataArgument, LayerOption, print_accuracies

EXAMPLES = """
twofold knn runs/frossl-photos-1
twofold knn runs/frossl-photos-1 labelled/ -k 5
"""


@command(EVALUATE, EXAMPLES)
def knn(
    run: EncoderArgument,
    data: DataArgument = None,
    k: Annotated[
        int, typer.Option("--k", "-k", metavar="N", help="The number of neighbours that vote.", show_default=True)
    ] = 20,
    temperature: Annotated[
        float,
        typer.Option(
            "--temperature",
            metavar="T",
            help="The temperature of the votes: a neighbour with cosine similarity s has a vote of weight exp(s / T).",
            show_default=True,
        ),
    ] = 0.07,
    layer: LayerOption = "pre",
    encoder: ArchitectureOption = None,
    image_size: SizeOption = None,
    adapter: AdapterOption = True,
    views: ViewsOption = 1,
    out: OutOption = None,
    quiet: Quiet = False,
) -> None:
    """Classify images by their nearest training images and compare with features without training."""
    from twofold.verbs import knn as verb

    display = display_of(quiet)
    with handle_interrupts():
        refuse_unwritable_json(out)
        found = verb.knn(
            run,
            data,
            k=k,
            temperature=temperature,
            layer=layer,
            encoder=encoder,
            image_size=image_size,
            adapter=adapter,
            views=views,
            display=display,
        )
        print_accuracies(found, f"kNN (k={k})", out, display)
