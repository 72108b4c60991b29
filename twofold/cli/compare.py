"""`twofold compare`."""

from pathlib import Path
from typing import Annotated

import typer

from twofold.cli.common import EVALUATE, ArchitectureOption, Quiet, command, display_of, handle_interrupts

EXAMPLES = """
twofold compare runs/simclr-photos-1 runs/byol-photos-1
twofold compare runs/simclr-photos-1 timm:resnet18
"""


@command(EVALUATE, EXAMPLES)
def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Two or more run folders or other encoders, such as efficientnet-lite0 or timm:NAME.",
            show_default=False,
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="DATA",
            help="The images on which encoders without a run are measured.",
            show_default="those of the first run",
        ),
    ] = None,
    encoder: ArchitectureOption = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="The page to write.", show_default=True)
    ] = Path("compare.html"),
    quiet: Quiet = False,
) -> None:
    """Write an HTML page that compares runs: a sortable table, training curves and maps of the features.

    Other encoders in place of a run are measured on the same images, with the same held-out images.
    """
    display = display_of(quiet)
    with handle_interrupts():
        if all((Path(run) / "config.json").exists() for run in runs):
            from twofold.report.compare import write_comparison
            from twofold.runs.folder import RunFolder

            display.say(write_comparison([RunFolder.open(Path(run)) for run in runs], out))
        else:
            from twofold.verbs.encoder_report import compare_any

            display.say(compare_any(runs, data, out, display, architecture=encoder))
