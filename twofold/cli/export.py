"""`twofold export`."""

from pathlib import Path
from typing import Annotated

import typer

from twofold.cli.common import (
    USE,
    AdapterOption,
    ArchitectureOption,
    EncoderArgument,
    Quiet,
    SizeOption,
    command,
    display_of,
    handle_interrupts,
)


@command(USE, examples="twofold export runs/frossl-photos-1 --format onnx", name="export")
def export_command(
    run: EncoderArgument,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help="The file format: safetensors, torchscript or onnx. Required.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="The file to write.",
            show_default="RUN/encoder.safetensors, .pt or .onnx",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="DATA",
            help="Images whose mean and standard deviation become the preprocessing, if the encoder does not state it.",
        ),
    ] = None,
    encoder: ArchitectureOption = None,
    image_size: SizeOption = None,
    adapter: AdapterOption = True,
    quiet: Quiet = False,
) -> None:
    """Export the encoder for use without Twofold, with a JSON file that states how to load it."""
    from twofold.verbs.export import export, sidecar

    display = display_of(quiet)
    with handle_interrupts():
        written = export(run, form, out, data=data, encoder=encoder, image_size=image_size, adapter=adapter)
        display.say(f"wrote {written}\n  and {sidecar(written)}, which states how to load it and prepare images")
