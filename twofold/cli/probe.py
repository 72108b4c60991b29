"""`twofold probe`."""

from typing import Annotated

import typer

from twofold.cli.common import OutOption, Quiet, RunArgument, app, display_of, handle_interrupts, refuse_unwritable_json
from twofold.cli.probing import DataArgument, LayerOption, tell
from twofold.errors import TwofoldError


@app.command()
def probe(
    run: RunArgument,
    data: DataArgument = None,
    solver: Annotated[
        str, typer.Option(help="lbfgs (to the minimum, penalty chosen on held-out images) or sgd (the papers').")
    ] = "lbfgs",
    labels_per_class: Annotated[
        str, typer.Option(help="Also with so few labels of each class: 1,5,10,100.", show_default=False)
    ] = "",
    layer: LayerOption = "pre",
    out: OutOption = None,
    quiet: Quiet = False,
) -> None:
    """Classes from frozen features by a linear classifier, beside raw pixels and an untrained encoder."""
    from twofold.verbs import probe as verb

    display = display_of(quiet)
    with handle_interrupts():
        refuse_unwritable_json(out)
        few = counts(labels_per_class)
        found = verb.probe(
            run,
            data,
            solver=solver,
            labels_per_class=few,
            layer=layer,
            display=display,
        )
        tell(found, f"linear ({solver})", out, display)


def counts(words: str) -> list[int]:
    try:
        found = [int(word) for word in words.split(",") if word.strip()]
    except ValueError:
        found = [0]
    if any(count < 1 for count in found):
        raise TwofoldError(f"--labels-per-class {words}: give whole numbers from 1 on, such as 1,5,10,100")
    return found
