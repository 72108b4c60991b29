"""`twofold report`."""

from pathlib import Path
from typing import Annotated

import typer

from twofold.cli.common import (
    EVALUATE,
    ArchitectureOption,
    EncoderArgument,
    Quiet,
    SizeOption,
    command,
    display_of,
    handle_interrupts,
)
from twofold.errors import TwofoldError

EXAMPLES = """
twofold report runs/frossl-photos-1
twofold report timm:resnet18 photos/ --out stock.html
"""


@command(EVALUATE, EXAMPLES)
def report(
    run: EncoderArgument,
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="[DATA]",
            help="The images of an encoder without a run; for a run, the new path of its images, if they moved.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="The page to write, for an encoder without a run.",
            show_default="report.html in its folder",
        ),
    ] = None,
    encoder: ArchitectureOption = None,
    image_size: SizeOption = None,
    points: Annotated[
        int | None,
        typer.Option(
            "--map",
            metavar="N",
            min=10,
            max=5000,
            help="Compute the map of the features again, with this many images (10 to 5000).",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Write the HTML report of a run again, or a report about any other encoder.

    The report of a run has the map and the pictures if Twofold finds the images of the run. The report of another
    encoder has everything that needs no training: accuracies, spectrum, verdict, map and nearest neighbours.
    """
    if not (Path(run) / "config.json").exists():
        from twofold.verbs import encoder_report

        display = display_of(quiet)
        with handle_interrupts():
            page = out or encoder_report.default_page(run)
            size = {} if points is None else {"points": points}
            written = encoder_report.report_encoder(
                run, data, page, display, module=encoder, image_size=image_size, **size
            )
            display.say(written)
        return
    if out is not None or encoder is not None or image_size is not None:
        raise TwofoldError(f"{run} is a run: its report is in its folder, so leave out --out, --encoder, --image-size")
    from twofold.report.page import write_anew
    from twofold.runs.folder import RunFolder

    display = display_of(quiet)
    with handle_interrupts():
        display.say(write_anew(RunFolder.open(Path(run)), display, points, data))
