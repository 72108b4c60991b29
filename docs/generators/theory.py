"""The theory of each paper: the figures that Twofold draws, and every claim that `twofold verify` checks."""

import io
import re
from pathlib import Path

from PIL import Image

from generators import paths
from generators.markdown import literal, table
from twofold.device import one_thread
from twofold_papers.verify.claim import PAPERS, Claim, claims
from twofold_papers.verify.figure import Figure, figures
from twofold_papers.verify.page import sentence

PICTURES = paths.DOCS / "pictures" / "theory"


def pages() -> dict[str, str]:
    """Return the text of each page, by its path below docs/reference/."""
    return {f"theory/{paper}.md": page(paper) for paper in PAPERS}


def page(paper: str) -> str:
    """Return the page of a paper. Its pictures are committed, because drawing them takes 15 seconds."""
    lines = [f"# {PAPERS[paper]}", ""]
    lines += [f"Run `twofold verify {paper}` to check these claims, and add `--report` to draw the figures.", ""]
    lines += ["## Figures", ""]
    for figure in figures(paper):
        address = Path("../../pictures/theory", picture_of(figure).name).as_posix()
        lines += [f"### {figure.number}", "", f"![{figure.number}]({address})", "", literal(figure.caption), ""]
    rows = [[claim.number, statement(claim)] for claim in claims(paper)]
    return "\n".join([*lines, "## Claims", "", *table(["number", "statement"], rows), ""])


def statement(claim: Claim) -> str:
    """Return what is checked, and the published form if it differs, with the conditions under which it holds."""
    text = literal(sentence(claim.statement))
    if claim.published_form is None:
        return text
    published = literal(sentence(claim.published_form))
    if claim.condition is None or claim.failing_condition is None:
        return f"{text} **Published, wrong:** {published}"
    conditions = f"**Holds if** {literal(sentence(claim.condition))} **Fails if** "
    return f"{text} **Published:** {published} {conditions}{literal(sentence(claim.failing_condition))}"


def draw_pictures() -> None:
    """Draw all figures. A palette of 64 colours keeps the files small."""
    PICTURES.mkdir(exist_ok=True)
    wanted = {picture_of(figure): figure for figure in figures()}
    for path in set(PICTURES.iterdir()) - wanted.keys():
        path.unlink()
    for path, figure in wanted.items():
        drawn = io.BytesIO()
        with one_thread():
            figure.draw().savefig(drawn, format="png", dpi=110)
        Image.open(drawn).convert("RGB").quantize(64).save(path, optimize=True)


def picture_of(figure: Figure) -> Path:
    name = re.sub(r"[^a-z0-9.]+", "-", figure.number.lower()).strip("-")
    return PICTURES / f"{figure.paper}-{name}.png"
