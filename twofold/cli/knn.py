"""`twofold knn`."""

from typing import Annotated

import typer

from twofold.cli.common import OutOption, Quiet, RunArgument, app, display_of, handle_interrupts, refuse_unwritable_json
from twofold.cli.probing import DataArgument, LayerOption, tell


@app.command()
def knn(
    run: RunArgument,
    data: DataArgument = None,
    k: Annotated[int, typer.Option("--k", "-k", help="Neighbours that vote.")] = 20,
    temperature: Annotated[float, typer.Option(help="A vote of similarity s weighs exp(s/temperature).")] = 0.07,
    layer: LayerOption = "pre",
    out: OutOption = None,
    quiet: Quiet = False,
) -> None:
    """Classes from the nearest training images, beside raw pixels and an untrained encoder."""
    from twofold.verbs import knn as verb

    display = display_of(quiet)
    with handle_interrupts():
        refuse_unwritable_json(out)
        found = verb.knn(run, data, k=k, temperature=temperature, layer=layer, display=display)
        tell(found, f"kNN (k={k})", out, display)
