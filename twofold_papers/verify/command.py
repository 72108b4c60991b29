"""`twofold verify`: check the claims of the papers numerically."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from twofold.cli.common import RESEARCH, Quiet, command, display_of, handle_interrupts


@command(RESEARCH, examples="twofold verify frossl --report")
def verify(
    paper: Annotated[
        str | None,
        typer.Argument(
            metavar="[PAPER]",
            help="Check only this paper: s-diet, frossl, birth, alpha-cl or isoloss.",
            show_default=False,
        ),
    ] = None,
    report: Annotated[bool, typer.Option("--report", help="Also draw the figures and write an HTML page.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="The page to write; implies --report.", show_default="theory.html"
        ),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List all claims and figures, and check nothing.")] = False,
    quiet: Quiet = False,
) -> None:
    """Check the claims of the papers numerically: compute both sides of each claim and compare them."""
    from twofold.files import refuse_unwritable
    from twofold_papers.verify.claim import PAPERS, Checked, check, claims
    from twofold_papers.verify.figure import Figure, figures
    from twofold_papers.verify.page import counts, picture, row, write_page

    display = display_of(quiet)
    page = out or (Path("theory.html") if report else None)
    with handle_interrupts():
        if listed:
            print_list(paper)
            return
        if page is not None:
            refuse_unwritable(page)
        wanted = claims(paper)
        results: list[Checked] = []
        with display.stage("checking claims", len(wanted)) as stage:
            for claim in wanted:
                stage.note(len(results), claim.id)
                results.append(check(claim))
            stage.note(len(results), f"{sum(checked.seconds for checked in results):.0f} s")
        for name, title in PAPERS.items():
            rows = [row(checked) for checked in results if checked.claim.paper == name]
            if rows:
                display.say(f"\n{title}")
                display.say(claims_table(rows))
        display.say("\n" + ", ".join(f"{verdict}: {count}" for verdict, count in counts(results).items()))
        if page is not None:
            drawn = figures(paper)
            pictures: list[tuple[Figure, str]] = []
            with display.stage("drawing figures", len(drawn)) as stage:
                for figure in drawn:
                    stage.note(len(pictures), f"{figure.paper}: {figure.number}")
                    pictures.append((figure, picture(figure)))
            display.say(f"report   {write_page(page, results, pictures)}")
        else:
            display.say("Run the command with --report to see what is computed for each claim.")
    if any(checked.verdict == "FAILS" for checked in results):
        raise typer.Exit(1)


def print_list(paper: str | None) -> None:
    """Print a line for each claim and figure, which another program can read."""
    from twofold_papers.verify.claim import claims
    from twofold_papers.verify.figure import figures

    for claim in claims(paper):
        typer.echo(f"{claim.paper}\tclaim\t{claim.number}\t{claim.statement.partition(' Checked: ')[0]}")
    for figure in figures(paper):
        typer.echo(f"{figure.paper}\tfigure\t{figure.number}\t{figure.caption.partition('. ')[0]}")


def claims_table(rows: list[dict[str, str]]) -> Table:
    """The claims of one paper: number, statement with both sides and the error, and verdict."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("claim", max_width=24)
    table.add_column("statement", ratio=1)
    table.add_column("verdict", max_width=13)
    for cells in rows:
        numbers = "{left} {relation} {right}, error {error}, allowed {tolerance}".format(**cells)
        statement = Text.assemble(cells["statement"], "\n", (numbers, "dim"))
        if cells["condition"]:
            statement.append(f"\nPublished: {cells['published_form']} This holds if {cells['condition']} ", "dim")
            statement.append(f"It fails if {cells['failing_condition']}", "dim")
        table.add_row(Text(cells["number"]), statement, Text(cells["verdict"]))
    return table
