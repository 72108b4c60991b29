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

EXAMPLES = """
twofold export runs/frossl-photos-1 --format onnx
twofold export runs/frossl-photos-1 --format folder --out photo-encoder
"""


@command(USE, EXAMPLES, name="export")
def export_command(
    run: EncoderArgument,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help="The file format: safetensors, torchscript or onnx; or folder, to share the encoder. Required.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="PATH",
            help="The file or folder to write. A folder needs a name.",
            show_default="RUN/encoder.safetensors, .pt or .onnx",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="DATA",
            help="Images whose mean and standard deviation become the preprocessing, if the encoder does not state it. "
            "With --format folder, an encoder without a run is also measured on them, for the model card.",
        ),
    ] = None,
    encoder: ArchitectureOption = None,
    image_size: SizeOption = None,
    adapter: AdapterOption = True,
    quiet: Quiet = False,
) -> None:
    """Export the encoder for use without Twofold, or as a folder with a model card, to share it.

    A JSON file states how to load it. `twofold pretrain --init FOLDER` and all other commands accept the folder.
    """
    from twofold.verbs.export import export
    from twofold.verbs.export_facts import sidecar

    display = display_of(quiet)
    with handle_interrupts():
        written = export(
            run, form, out, data=data, encoder=encoder, image_size=image_size, adapter=adapter, display=display
        )
        if written.is_dir():
            display.say(f"wrote {written}\n  README.md is the model card: add the license before you publish it")
        else:
            display.say(f"wrote {written}\n  and {sidecar(written)}, which states how to load it and prepare images")
