"""Claims in general: errors, verdicts, the command and the page."""

import math
from pathlib import Path

import pytest
import torch

import running
from generators import errata
from twofold.errors import TwofoldError
from twofold_papers.verify import page as page
from twofold_papers.verify.claim import PAPERS, Claim, Sides, check, claims
from twofold_papers.verify.figure import Figure, figures


def made(left: float, right: float, tolerance: float = 1e-9) -> Claim:
    return Claim("frossl", "eq 0", "left is right", lambda: Sides(left, right), tolerance)


@pytest.mark.parametrize(
    ("sides", "error"),
    [
        (Sides(2.0, 2.0), 0.0),
        (Sides(0.5, 0.25), 0.25),  # absolute if values are small
        (Sides(300.0, 303.0), 3 / 303),  # relative if they are large
        (Sides(torch.tensor([1.0, -4.0]), torch.tensor([1.0, -3.0])), 0.25),
        (Sides(1.0, 2.0, "≤"), 0.0),
        (Sides(2.0, 1.0, "≤"), 0.5),
        (Sides(1.0, 2.0, "≥"), 0.5),
        (Sides(2.0, 1.0, ">"), 0.0),
        (Sides(1.0, 1.0, "<"), math.inf),  # equal is not less
        (Sides(1.0 + 1e-12, 1.0, "<"), math.inf),
        (Sides(math.nan, 1.0), math.inf),
        (Sides(1.0, math.inf, "≤"), math.inf),  # an infinite bound shows nothing
    ],
)
def test_error_is_the_largest_violation(sides: Sides, error: float) -> None:
    assert sides.error() == pytest.approx(error)


def test_verdicts() -> None:
    assert check(made(1.0, 1.0)).verdict == "holds"
    assert check(made(1.0, 1.1)).verdict == "FAILS"
    corrected = made(1.0, 1.0)
    corrected.published("right is left plus one")(lambda: Sides(2.0, 1.0))
    assert check(corrected).verdict == "holds as corrected"
    assert check(corrected).published_error == 0.5
    no_mistake = made(1.0, 1.0)
    no_mistake.published("the same")(lambda: Sides(1.0, 1.0))
    assert check(no_mistake).verdict == "FAILS", "the form that is claimed to be wrong holds"


def test_a_statement_that_holds_in_one_interpretation_is_not_called_wrong() -> None:
    ambiguous = made(1.0, 1.0)
    ambiguous.published("both are two")(lambda: Sides(2.0, 1.0))
    ambiguous.holds_if("both are doubled", fails_if="neither is")(lambda: Sides(2.0, 2.0))
    assert check(ambiguous).verdict == "holds conditionally"
    assert check(ambiguous).published_error == 0.5
    text = errata.page([check(ambiguous)])
    assert "Holds if both are doubled." in text
    assert "Fails if neither is. Error 0.5." in text
    ambiguous.compute_conditional = lambda: Sides(2.0, 2.1)
    assert check(ambiguous).verdict == "FAILS", "the form fails in both interpretations"
    ambiguous.compute_conditional, ambiguous.compute_published = lambda: Sides(2.0, 2.0), lambda: Sides(1.0, 1.0)
    assert check(ambiguous).verdict == "FAILS", "the form holds in both interpretations"


def test_a_check_is_repeatable_and_keeps_the_random_state() -> None:
    drawing = Claim("frossl", "eq 0", "a draw", lambda: Sides(torch.rand(3), 0.0), 1.0)
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    first, second = check(drawing), check(drawing)
    assert torch.equal(first.sides.left, second.sides.left)
    assert torch.equal(torch.rand(2), expected)


def test_every_paper_has_claims_and_they_are_distinct() -> None:
    for paper in PAPERS:
        found = claims(paper)
        assert found
        assert len({(claim.number, claim.statement) for claim in found}) == len(found)
        assert all(0 <= claim.tolerance < 0.5 for claim in found)
    assert len(claims()) == sum(len(claims(paper)) for paper in PAPERS)


def test_an_unknown_paper_is_refused_with_a_suggestion() -> None:
    with pytest.raises(TwofoldError, match="did you mean 'frossl'"):
        claims("frosl")


def test_the_page_has_every_claim_and_picture(tmp_path: Path) -> None:
    corrected = made(1.0, 1.0)
    corrected.published("one & one is <three>")(lambda: Sides(3.0, 1.0))
    figure = Figure("frossl", "Figure 9", "what is seen", lambda: None)
    path = page.write_page(tmp_path / "theory.html", [check(corrected)], [(figure, "data:image/png;base64,AAAA")])
    html = path.read_text(encoding="ascii")
    for text in ("left is right", "one &amp; one is &lt;three&gt;", "holds as corrected", "Figure 9", "base64,AAAA"):
        assert text in html
    assert "http" not in html.replace("http-equiv", "")
    assert "one & one is <three>. Error 0.67" in errata.page([check(corrected)]).replace("\\", "")


def test_verify_exits_with_1_if_a_claim_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from twofold.cli import app
    from twofold_papers.verify import claim

    outcomes = {}
    for name, right in (("good", 1.0), ("bad", 2.0)):
        monkeypatch.setattr(claim, "claims", lambda _, right=right: [made(1.0, right)])
        outcomes[name] = CliRunner().invoke(app, ["verify", "frossl"])
    assert outcomes["good"].exit_code == 0
    assert "holds: 1" in outcomes["good"].output
    assert outcomes["bad"].exit_code == 1
    assert "FAILS: 1" in outcomes["bad"].output


def test_list_names_every_claim_and_figure_and_checks_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from twofold.cli import app

    monkeypatch.setattr(torch, "manual_seed", lambda _: pytest.fail("a claim was checked"))
    lines = CliRunner().invoke(app, ["verify", "frossl", "--list"]).output.splitlines()
    rows = [line.split("\t") for line in lines]
    assert [row[:3] for row in rows if row[1] == "claim"] == [
        ["frossl", "claim", one.number] for one in claims("frossl")
    ]
    assert [row[2] for row in rows if row[1] == "figure"] == [one.number for one in figures("frossl")]
    assert all(row[3] for row in rows)


def test_claims_are_computed_with_one_thread() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert check(Claim("frossl", "eq 0", "", lambda: Sides(float(torch.get_num_threads()), 1.0), 0.0)).error == 0
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_typo_gives_an_error_without_a_traceback() -> None:
    result = running.call("verify", "frosl")
    assert result.returncode != 0
    assert "frossl" in result.stderr
    assert "Traceback" not in result.stderr
