"""`twofold export`."""

from pathlib import Path
from typing import Annotated

import typer

from twofold.cli.common import Quiet, RunArgument, app, display_of, handle_interrupts


@app.command("export")
def export_command(
    run: RunArgument,
    form: Annotated[str, typer.Option("--format", "-f", help="safetensors, torchscript or onnx.", show_default=False)],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file. [RUN/encoder.ENDING]")] = None,
    quiet: Quiet = False,
) -> None:
    """Write the encoder for other programs, with a JSON file beside it that says how to load and feed it."""
    from twofold.verbs.export import export, sidecar

    display = display_of(quiet)
    with handle_interrupts():
        written = export(run, form, out)
        display.say(f"wrote {written}\n  and {sidecar(written)}: how to load it, and what images it takes")
