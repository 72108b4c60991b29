"""What is done with a trained encoder: `twofold embed`, `search` and `export`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from twofold.cli.common import Quiet, RunArgument, app, display_of, polite

Images = Annotated[str, typer.Argument(metavar="DATA", help="Images, as for pretrain.", show_default=False)]


@app.command("embed")
def embed_command(
    run: RunArgument,
    data: Images,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="A .npz, .csv or .parquet file: features, index, split, labels, files.")
    ],
    quiet: Quiet = False,
) -> None:
    """Write the features of images under a run's encoder."""
    from twofold.use.embedding import embed

    display = display_of(quiet)
    with polite():
        display.say(f"wrote {embed(run, data, out, display=display)}")


@app.command("search")
def search_command(
    run: RunArgument,
    data: Images,
    query: Annotated[list[Path], typer.Argument(metavar="QUERY", help="Image files.", show_default=False)],
    k: Annotated[int, typer.Option("-k", min=1, help="How many images to show for each.")] = 10,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but what was found.")] = False,
) -> None:
    """Find the images nearest to others, with their cosine similarity. The next search among DATA is quick."""
    from twofold.use.search import search

    console = Console()
    with polite():
        for file, matches in zip(query, search(run, data, query, k=k, display=display_of(quiet)), strict=True):
            lines = [str(file)]
            for rank, match in enumerate(matches, start=1):
                image = f"image {match.index}" if match.file is None else str(Path(data) / match.file)
                lines.append(f"{rank:>4}  {match.similarity:.4f}  {image}{f'  ({match.name})' if match.name else ''}")
            # Not a table, which would cut long names where the terminal ends; not as markup, since names have brackets.
            console.print("\n".join(lines), highlight=False, soft_wrap=True, markup=False)


@app.command("export")
def export_command(
    run: RunArgument,
    form: Annotated[str, typer.Option("--format", "-f", help="safetensors, torchscript or onnx.", show_default=False)],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file. [RUN/encoder.ENDING]")] = None,
    quiet: Quiet = False,
) -> None:
    """Write the encoder for other programs, with a JSON file beside it that says how to load and feed it."""
    from twofold.use.export import export, sidecar

    display = display_of(quiet)
    with polite():
        written = export(run, form, out)
        display.say(f"wrote {written}\n  and {sidecar(written)}: how to load it, and what images it takes")
