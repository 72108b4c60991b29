"""What was learnt, in numbers: `twofold probe`, `knn` and `diagnose`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from twofold.cli.common import Quiet, RunArgument, app, display_of, polite, say_verdict
from twofold.errors import TwofoldError

if TYPE_CHECKING:
    from twofold.train.progress import Display

WIDE = 20  # classes up to which the whole confusion matrix is printed
WORST = 10  # classes, and confusions, that are printed of more

DataArgument = Annotated[
    str | None,
    typer.Argument(metavar="[DATA]", help="Labelled images, as for pretrain. [the run's own]", show_default=False),
]
LayerOption = Annotated[str, typer.Option(help="pre: the encoder's features; post: the projector's output.")]
OutOption = Annotated[Path | None, typer.Option("--out", "-o", help="Also write all numbers to this .json file.")]


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
    from twofold import inspection

    display = display_of(quiet)
    with polite():
        refuse_unwritable(out)
        few = counts(labels_per_class)
        found = inspection.probe(
            run,
            data,
            solver=solver,
            labels_per_class=few,
            layer=layer,
            display=display,
        )
        tell(found, f"linear ({solver})", out, display)


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
    from twofold import inspection

    display = display_of(quiet)
    with polite():
        refuse_unwritable(out)
        found = inspection.knn(run, data, k=k, temperature=temperature, layer=layer, display=display)
        tell(found, f"kNN (k={k})", out, display)


@app.command()
def diagnose(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE|RUN|timm:NAME",
            help="Embeddings (.npy, .npz, .csv, .parquet), weights (.safetensors), a run folder, or a model of timm.",
            show_default=False,
        ),
    ],
    data: Annotated[
        str | None,
        typer.Argument(metavar="[DATA]", help="Images for an encoder, as for pretrain.", show_default=False),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(help="The architecture of a .safetensors file: resnet18, resnet50, timm:NAME, ..."),
    ] = None,
    image_size: Annotated[int | None, typer.Option(help="For such a file. [as pretrain would choose]")] = None,
    out: OutOption = None,
    quiet: Quiet = False,
) -> None:
    """The spectrum of any embeddings or encoder, whether it collapsed, and near-duplicates; no labels needed."""
    from twofold import diagnosis

    display = display_of(quiet)
    with polite():
        refuse_unwritable(out)
        found = diagnosis.diagnose(what, data, encoder=encoder, image_size=image_size, display=display)
        display.say(f"{found['rows']:,} rows of {found['dimension']} features: {found['of']}")
        table = Table("measure", "value", "", box=None, header_style="bold")
        for name, value in found["measures"].items():
            shown = "infinite" if value is None else f"{value:.4g}"
            table.add_row(name.replace("_", " "), shown, diagnosis.MEANING[name])
        if found["measures"]:
            display.say(table)
        say_verdict(found["verdict"], display)
        display.say(f"copies   {copies(found['duplicates'])}")
        if found["training"] is not None:
            display.say(f"training {found['training']['sentence']}")
        write(found, out, display)


def copies(groups: list[tuple[int, ...]] | None) -> str:
    if groups is None:
        return "not looked for: too many rows to compare all pairs of, some that are not finite, or all nearly the same"
    if not groups:
        return "no rows that are nearly the same"
    first = ", ".join(map(str, groups[0][:WORST]))
    return f"{len(groups):,} groups of rows that are nearly the same; the largest has {len(groups[0])}: {first}"


def counts(words: str) -> list[int]:
    try:
        found = [int(word) for word in words.split(",") if word.strip()]
    except ValueError:
        found = [0]
    if any(count < 1 for count in found):
        raise TwofoldError(f"--labels-per-class {words}: give whole numbers from 1 on, such as 1,5,10,100")
    return found


def refuse_unwritable(out: Path | None) -> None:
    """Before the work, not after it."""
    if out is None:
        return
    if out.suffix != ".json" or not out.resolve().parent.is_dir():
        raise TwofoldError(f"--out {out}: numbers are written as .json, into a folder that exists")
    from twofold.train import outputs

    outputs.refuse_unwritable(out)


def write(found: dict[str, Any], out: Path | None, display: "Display") -> None:
    if out is not None:
        from twofold.train.checkpoint import write_atomically
        from twofold.train.outputs import writing

        with writing(out):
            write_atomically(out, json.dumps(found, indent=1) + "\n")
        display.say(f"wrote    {out}")


def tell(found: dict[str, Any], title: str, out: Path | None, display: "Display") -> None:
    where = "after the projector" if found["layer"] == "post" else "encoder's features"
    display.say(
        f"{found['data']}: {found['train_images']:,} training and {found['test_images']:,} test images, {where}"
    )
    display.say(main_table(found, title))
    names, rows = found["classes"], found["rows"]
    display.say(class_table(names, rows))
    display.say(confusions(names, rows[0]["confusion"]))
    write(found, out, display)


def main_table(found: dict[str, Any], title: str) -> Table:
    rows = found["rows"]
    few = [item["labels_per_class"] for item in rows[0].get("few_labels", [])]
    several = rows[0]["top5"] is not None
    table = Table("", f"{title}, top-1", *(["top-5"] if several else []), box=None, header_style="bold")
    for count in few:
        table.add_column(f"{count} per class" if count > 1 else "1 label per class")
    for row in rows:
        cells = [row["name"], percent(row["top1"])] + ([percent(row["top5"])] if several else [])
        cells += [f"{100 * item['mean']:.1f} ± {100 * item['sd']:.1f} %" for item in row.get("few_labels", [])]
        table.add_row(*cells)
    return table


def class_table(names: list[str], rows: list[dict[str, Any]]) -> Table:
    order = list(range(len(names)))
    title = "class"
    if len(names) > WIDE:
        order = sorted(order, key=lambda number: rows[0]["per_class"][number] or 0.0)[:WORST]
        title = f"the {WORST} worst classes"
    table = Table(title, *(row["name"] for row in rows), box=None, header_style="bold")
    for number in order:
        table.add_row(names[number], *(percent(row["per_class"][number]) for row in rows))
    return table


def confusions(names: list[str], matrix: list[list[int]]) -> Table:
    """Of the trained encoder: rows are true classes, columns what they were taken for."""
    if len(names) <= WIDE:
        table = Table("taken for", *names, box=None, header_style="bold")
        for name, counted in zip(names, matrix, strict=True):
            table.add_row(name, *(str(count) if count else "·" for count in counted))
        return table
    pairs = [(count, i, j) for i, counted in enumerate(matrix) for j, count in enumerate(counted) if i != j and count]
    table = Table("class", "taken for", "times", box=None, header_style="bold")
    for count, i, j in sorted(pairs, reverse=True)[:WORST]:
        table.add_row(names[i], names[j], str(count))
    return table


def percent(value: float | None) -> str:
    return "—" if value is None else f"{100 * value:.1f} %"
