"""`twofold probe`."""

from pathlib import Path
from typing import Annotated

import typer

from twofold.cli.common import (
    EVALUATE,
    AdapterOption,
    ArchitectureOption,
    EncoderArgument,
    Quiet,
    SizeOption,
    ViewsOption,
    command,
    display_of,
    handle_interrupts,
    refuse_unwritable_json,
)
from twofold.cli.probing import DataArgument, LayerOption, print_accuracies
from twofold.errors import TwofoldError

EXAMPLES = """
twofold probe runs/frossl-photos-1
twofold probe runs/frossl-photos-1 labelled/ --labels-per-class 1,10
"""


@command(EVALUATE, EXAMPLES)
def probe(
    run: EncoderArgument,
    data: DataArgument = None,
    solver: Annotated[
        str,
        typer.Option(
            "--solver",
            metavar="NAME",
            help="How the classifier is trained. `lbfgs` converges fully and chooses the weight penalty on held-out "
            "training images; `sgd` follows solo-learn's protocol and `adam` that of FroSSL on ImageNet (100 epochs).",
            show_default=True,
        ),
    ] = "lbfgs",
    labels_per_class: Annotated[
        str,
        typer.Option(
            "--labels-per-class",
            metavar="COUNTS",
            help="Also train with only this many labels of each class. Separate several numbers by commas: 1,5,10,100.",
            show_default=False,
        ),
    ] = "",
    layer: LayerOption = "pre",
    encoder: ArchitectureOption = None,
    image_size: SizeOption = None,
    adapter: AdapterOption = True,
    views: ViewsOption = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Write all numbers to this .json file, or the classifier to this .safetensors file, for "
            "`twofold predict`.",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Train a linear classifier on frozen features and compare it with features without training."""
    from twofold.verbs import probe as verb

    display = display_of(quiet)
    with handle_interrupts():
        classifier = out if out is not None and out.suffix == ".safetensors" else None
        out = None if classifier is not None else out
        refuse_unwritable_json(out)
        few = counts(labels_per_class)
        found = verb.probe(
            run,
            data,
            solver=solver,
            labels_per_class=few,
            layer=layer,
            encoder=encoder,
            image_size=image_size,
            adapter=adapter,
            views=views,
            classifier=classifier,
            display=display,
        )
        print_accuracies(found, f"linear ({solver})", out, display)


def counts(words: str) -> list[int]:
    """Parse `1,5,10,100`."""
    try:
        found = [int(word) for word in words.split(",") if word.strip()]
    except ValueError:
        found = [0]
    if any(count < 1 for count in found):
        raise TwofoldError(f"--labels-per-class {words}: give whole numbers of at least 1, such as 1,5,10,100")
    return found
