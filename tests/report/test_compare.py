"""The comparison page: its sortable table, curves by epoch and by time, and maps that share their pictures."""

import errno
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from browser import CHROMIUM, elements, texts, visit, width_needed
from fake_runs import RESULTS, TABLE, VERDICT, blob, fake_pictures, fake_run, finished_run, pictured_run
from twofold.errors import TwofoldError
from twofold.report import compare
from twofold.report.charts import clock
from twofold.report.compare import names_of, render_comparison, write_comparison
from twofold.runs.folder import RunFolder

in_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium to run the scripts of the page")


@pytest.fixture
def runs(tmp_path: Path) -> list[RunFolder]:
    """Return a finished run, a better run of another method, and an unfinished run."""
    first = pictured_run(tmp_path / "first")
    better = pictured_run(tmp_path / "second", method="simclr", temperature=0.2)
    table = [row | {"linear_accuracy": 0.985} for row in RESULTS["table"][:1]]  # type: ignore[index]
    better.write("results.json", json.dumps(RESULTS | {"table": table, "verdict": VERDICT, "memory": 2000.0}))
    return [first, better, fake_run(tmp_path / "third", done=84)]


def cells(html: str) -> list[list[str]]:
    """Return the first table row by row: the head, then the runs and the baselines."""
    rows: list[list[str]] = []
    for element in elements(html.split("<table")[1].split("</table>")[0].join(["<table", "</table>"])):
        if element.tag == "tr":
            rows.append([])
        elif element.tag in ("th", "td"):
            rows[-1].append("".join(element.text).strip())
    return rows


def records(html: str) -> list[dict[str, str]]:
    head, *rows = cells(html)
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_the_table_has_a_row_of_numbers_for_each_run(runs: list[RunFolder]) -> None:
    html = render_comparison(runs)
    table = records(html)[:3]
    assert [row["run"] for row in table] == ["first", "second", "third"]
    assert [row["method"] for row in table] == ["frossl", "simclr", "frossl"]
    assert [row["linear"] for row in table] == ["97.1", "98.5", ""]
    assert [row["epochs"] for row in table] == ["40", "40", "7"]
    assert [row["verdict"] for row in table] == ["", "dimensional collapse", ""]
    assert [row["MiB"] for row in table] == ["", "2,000", ""]
    assert [row["training time"] for row in table] == ["48 s", "48 s", "8.4 s"]
    assert [row["few labels"] for row in table] == ["92.1", "92.1", ""]
    # The two finished runs and the two baselines of the first run have standard deviations.
    assert texts(html.split("</table>")[0], "small") == ["\N{PLUS-MINUS SIGN} 1.2"] * 4
    assert "MiB" not in cells(render_comparison([runs[0], runs[2]]))[0]


def test_runs_that_differ_only_in_their_seed_share_a_row(tmp_path: Path) -> None:
    def run(name: str, linear: float, verdict: str, **values: object) -> RunFolder:
        folder = finished_run(tmp_path / name, **values)
        table = [row | {"linear_accuracy": linear} for row in TABLE[:1]]
        folder.write("results.json", json.dumps(RESULTS | {"table": table, "verdict": {"kind": verdict}}))
        return folder

    warm = {"method": "simclr", "temperature": 0.5}
    runs = [
        run("a", 0.90, "healthy", seed=0, **{"checkpoint.seconds": 5}),
        run("b", 0.92, "healthy", seed=1),
        run("c", 0.97, "falling probe", seed=2),
        run("d", 0.80, "healthy", **warm),
        run("e", 0.70, "healthy", **warm | {"temperature": 0.1}),
        fake_run(tmp_path / "stopped", done=84, seed=3),
    ]
    html = render_comparison(runs)
    part = html.split('id="seeds"')[1].split("</section>")[0]
    assert [(row["configuration"], row["seeds"], row["verdict"], row["linear"]) for row in records(part)] == [
        ("frossl", "0, 1, 2", "no collapse (2), falling probe (1)", "93.0"),
        ("simclr, temperature=0.5", "7", "no collapse", "80.0"),
        ("simclr, temperature=0.1", "7", "no collapse", "70.0"),
    ]
    # The standard deviation of 90, 92 and 97 is √((9 + 1 + 16) / 2).
    assert texts(part, "small")[0] == "\N{PLUS-MINUS SIGN} 3.6"
    assert 'id="seeds"' not in render_comparison(runs[2:])
    # A second run with the same seed is not counted, and other images make another configuration.
    again = run("again", 0.50, "healthy", seed=0)
    assert 'id="seeds"' not in render_comparison([runs[0], again])
    for folder, fingerprint in ((runs[0], "one"), (runs[1], "one"), (runs[2], "other")):
        np.savez(folder.path / "images.npz", fingerprint=np.array(fingerprint))
    part = render_comparison(runs[:3]).split('id="seeds"')[1].split("</section>")[0]
    assert [(row["configuration"], row["seeds"]) for row in records(part)] == [
        ("frossl, images=one", "0, 1"),
        ("frossl, images=other", "2"),
    ]
    with pytest.raises(TwofoldError, match="needs two runs or more"):
        write_comparison([runs[0], RunFolder(runs[0].path)], tmp_path / "page.html")


def test_equal_baselines_share_a_row(tmp_path: Path) -> None:
    same = [finished_run(tmp_path / name) for name in ("a", "b")]
    below = records(render_comparison(same))[2:]
    assert [(row["run"], row["data"], row["linear"], row["kNN"], row["method"]) for row in below] == [
        ("untrained", "digits", "93.0", "90.0", ""),
        ("raw pixels", "digits", "95.5", "97.1", ""),
    ]
    # With another encoder, the accuracy of untrained weights differs, but that of raw pixels does not.
    other = finished_run(tmp_path / "c")
    table = [row | ({"linear_accuracy": 0.5} if row["name"] == "untrained" else {}) for row in TABLE]
    other.write("results.json", json.dumps(RESULTS | {"table": table}))
    below = records(render_comparison([*same, other]))[3:]
    assert [(row["run"], row["linear"]) for row in below] == [
        ("untrained, a, b", "93.0"),
        ("untrained, c", "50.0"),
        ("raw pixels", "95.5"),
    ]
    elsewhere = finished_run(tmp_path / "d", data="/home/me/photos")
    below = records(render_comparison([same[0], elsewhere]))[2:]
    assert [(row["run"], row["data"]) for row in below] == [
        ("untrained, a", "digits"),
        ("untrained, d", "photos"),
        ("raw pixels, a", "digits"),
        ("raw pixels, d", "photos"),
    ]
    stopped = fake_run(tmp_path / "e", done=84, data="/home/me/photos")
    below = records(render_comparison([same[0], stopped]))[2:]
    assert [row["run"] for row in below] == ["untrained, a", "raw pixels, a"]


def test_only_keys_with_different_values_are_listed(runs: list[RunFolder]) -> None:
    html = render_comparison(runs)
    listed = html.split('id="differences"')[1]
    assert texts(listed, "th")[4:] == ["method", "temperature"]
    assert texts(listed, "td") == ["frossl", "simclr", "frossl", "", "0.2", ""]


def test_curves_are_drawn_by_epoch_and_by_time(runs: list[RunFolder]) -> None:
    charts = blob(render_comparison(runs))
    by_epoch, by_time = charts["loss-epoch"], charts["loss-time"]
    for chart in (by_epoch, by_time):
        assert [line["name"] for line in chart["series"]] == ["first", "second", "third"]
        assert len({line["colour"] for line in chart["series"]}) == 3
    steps = [record["step"] for record in runs[2].read("metrics.jsonl")]
    assert by_epoch["series"][2]["x"] == pytest.approx([step / 12 for step in steps], rel=1e-4)
    assert by_time["x"]["label"] == "seconds"
    assert by_time["series"][2]["x"] == pytest.approx([0.1 * step for step in steps], rel=1e-4)
    assert by_time["series"][2]["y"] == by_epoch["series"][2]["y"]
    accuracy = charts["online_accuracy-epoch"]["series"][0]
    assert accuracy["y"][-1] == pytest.approx(100 * (0.99 - 0.9 / (1 + 480 / 25)), abs=1e-2)


def test_the_clock_adds_up_over_resumed_parts() -> None:
    timing = [(1, 1.0), (2, 2.0), (3, 3.0), (3, 0.5), (4, 1.5), (5, 0.25)]
    assert clock([{"step": step, "seconds": seconds} for step, seconds in timing]) == {
        1: 1.0, 2: 2.0, 3: 3.5, 4: 4.5, 5: 4.75
    }  # fmt: skip


def test_long_runs_use_larger_units_of_time(tmp_path: Path) -> None:
    folders = [finished_run(tmp_path / name) for name in "ab"]
    folders[0].append("timing.jsonl", {"step": 480, "seconds": 9000.0})
    charts = blob(render_comparison(folders))
    assert charts["loss-time"]["x"]["label"] == "hours"
    assert charts["loss-time"]["series"][0]["x"][-1] == 2.5


def test_runs_on_the_same_images_share_their_pictures(
    runs: list[RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = fake_pictures()["map"]["sheet"]["address"]
    html = render_comparison(runs)
    assert html.count(address) == 1
    charts = blob(html)
    assert charts["map-0"]["sheet"] == charts["map-1"]["sheet"]
    assert "map-2" not in charts
    other = finished_run(tmp_path / "other")
    other.write("pictures.json", json.dumps(fake_pictures(points=30)))
    assert render_comparison([runs[0], other]).count("data:image/png;base64,") == 2
    # Pictures beyond the limit are left out, but their points are kept.
    monkeypatch.setattr(compare, "PICTURE_BYTES", len(address))
    html = render_comparison([runs[0], other])
    assert html.count("data:image/png;base64,") == 1
    assert blob(html)["map-1"]["sheet"] is None
    assert len(blob(html)["map-1"]["points"]["x"]) == 30


def test_names_are_as_short_as_possible() -> None:
    assert names_of([Path("/runs/a"), Path("/runs/b")]) == ["a", "b"]
    assert names_of([Path("/x/1/a"), Path("/x/2/a"), Path("/x/2/b")]) == ["1/a", "2/a", "2/b"]


def test_a_single_run_and_a_missing_output_folder_are_refused(runs: list[RunFolder], tmp_path: Path) -> None:
    with pytest.raises(TwofoldError, match="two runs or more"):
        write_comparison([runs[0], RunFolder(runs[0].path / ".." / "first")], tmp_path / "page.html")
    for out, reason in ((tmp_path / "nowhere" / "page.html", "does not exist; create it"), (tmp_path, "is a folder")):
        with pytest.raises(TwofoldError, match=reason):
            write_comparison(runs, out)


def test_an_error_of_the_disk_is_reported(
    runs: list[RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(
        TwofoldError, match=rf"could not be written to {tmp_path} \(No space left on device\): free some disk space"
    ):
        write_comparison(runs, tmp_path / "page.html")
    monkeypatch.setattr("os.access", lambda *_, **__: False)
    monkeypatch.setattr(compare, "render_comparison", lambda _: pytest.fail("the work was done"))
    with pytest.raises(TwofoldError, match=f"the folder {tmp_path} is not writable"):
        write_comparison(runs, tmp_path / "page.html")


def test_names_cannot_inject_html(tmp_path: Path) -> None:
    evil = "</script><img src=x onerror=alert(1)>"
    folders = [fake_run(tmp_path / name, done=24, method=evil + name) for name in "ab"]
    html = render_comparison(folders)
    assert "<img" not in html
    assert [e.tag for e in elements(html)].count("script") == 2


SORT = """
const order = () => [...document.querySelectorAll(".sortable tbody th")].map((cell) => cell.textContent).join(" ");
const buttons = [...document.querySelectorAll(".sortable th button")];
const seen = [];
for (const name of ["linear", "linear", "run", "method"]) {
  buttons.find((button) => button.textContent === name).click();
  seen.push(order());
}
document.body.dataset.orders = seen.join("; ");
"""


@in_browser
def test_page_is_drawn_and_sorted_in_a_browser(runs: list[RunFolder], tmp_path: Path) -> None:
    page = write_comparison([runs[2], *runs[:2]], tmp_path / "page.html")
    seen = visit(page, SORT)
    assert seen.console == []
    (body,) = [element for element in elements(seen.dom) if element.tag == "body"]
    # The first click sorts numbers descending and words ascending. Rows without a number stay last.
    assert body.attributes["data-orders"] == (
        "second first raw pixels untrained third; untrained raw pixels first second third; "
        "first raw pixels second third untrained; first third second raw pixels untrained"
    )
    described = blob(page.read_text())
    drawn = [element.inside[0] for element in elements(seen.dom) if element.tag == "svg"]
    assert sorted(drawn) == sorted(described)
    lines = [e.inside[0] for e in elements(seen.dom) if e.tag == "path" and e.attributes.get("class") == "line"]
    for name, chart in described.items():
        assert chart["kind"] == "map" or lines.count(name) == len(chart["series"])


POINT = """
const drawing = document.querySelector('[data-chart="map-1"] svg'), frame = drawing.getBoundingClientRect();
const end = {clientX: frame.right - 20, clientY: frame.top + frame.height / 2, bubbles: true};
drawing.dispatchEvent(new PointerEvent("pointermove", end));
"""


@in_browser
def test_pointing_at_an_image_marks_it_in_maps_of_the_same_images(runs: list[RunFolder], tmp_path: Path) -> None:
    other = finished_run(tmp_path / "other")
    other.write("pictures.json", json.dumps(fake_pictures(points=30)))
    seen = visit(write_comparison([*runs[:2], other], tmp_path / "page.html"), POINT)
    assert seen.console == []
    rings = {e.inside[0]: e.attributes for e in elements(seen.dom) if e.attributes.get("class") == "ring"}
    assert set(rings) == {"map-0", "map-1", "map-2"}
    # The first two maps are equal, so the mark is at the same point. The third map has other images.
    assert rings["map-0"]["cx"] == rings["map-1"]["cx"]
    assert float(rings["map-0"]["cx"] or 0) > 100
    assert [("none" in (rings[name].get("style") or "")) for name in sorted(rings)] == [False, False, True]


def flat_run(path: Path, classes: int = 4) -> RunFolder:
    """Return a run whose map is a fifth as high as that of other runs."""
    folder = finished_run(path)
    pictures = fake_pictures(classes=classes)
    pictures["map"]["y"] = [0.2 * y for y in pictures["map"]["y"]]
    folder.write("pictures.json", json.dumps(pictures))
    return folder


SHARED = """
document.querySelectorAll(".shared .series")[1].click();
const before = document.querySelectorAll(".points").length;
const sizes = [...document.querySelectorAll(".atlas svg")].map((map) => map.getAttribute("height"));
const dots = [...document.querySelectorAll('.points[data-label="1"]')].map((path) => path.getAttribute("d").length);
document.querySelectorAll(".shared .modes button")[1].click();
const canvases = [...document.querySelectorAll(".atlas canvas")].map((canvas) => canvas.hidden);
document.body.dataset.seen = JSON.stringify({ sizes, before, dots, canvases });
"""


@in_browser
def test_maps_of_the_same_classes_share_height_legend_and_switch(runs: list[RunFolder], tmp_path: Path) -> None:
    seen = visit(write_comparison([runs[0], flat_run(tmp_path / "flat")], tmp_path / "page.html"), SHARED)
    assert seen.console == []
    (body,) = [element for element in elements(seen.dom) if element.tag == "body"]
    found = json.loads(body.attributes["data-seen"] or "")
    assert len(set(found["sizes"])) == 1
    assert found["before"] == 8
    assert found["dots"] == [0, 0]
    assert found["canvases"] == [False, False]
    classes = [element.attributes.get("class") for element in elements(seen.dom)]
    assert [classes.count(name) for name in ("classes", "modes")] == [1, 1]


@in_browser
def test_maps_of_different_classes_have_their_own_legends(runs: list[RunFolder], tmp_path: Path) -> None:
    seen = visit(write_comparison([runs[0], flat_run(tmp_path / "flat", classes=3)], tmp_path / "page.html"))
    assert seen.console == []
    legends = [e.inside for e in elements(seen.dom) if e.attributes.get("class") in ("classes", "modes")]
    assert legends == [("map-0",)] * 2 + [("map-1",)] * 2
    heights = [e.attributes["height"] for e in elements(seen.dom) if e.tag == "svg" and e.inside[0].startswith("map-")]
    assert len(set(heights)) == 1


@in_browser
def test_the_page_fits_a_phone(runs: list[RunFolder], tmp_path: Path) -> None:
    page = write_comparison(runs, tmp_path / "page.html")
    assert width_needed(page, 390, tmp_path / "frame.html") == (390, 390)


@pytest.mark.parametrize(
    "seconds, unit", [(1.0, "seconds"), (119.0, "seconds"), (120.0, "minutes"), (7199.0, "minutes"), (7200.0, "hours")]
)
def test_the_longest_run_takes_at_least_two_units_of_time(seconds: float, unit: str) -> None:
    assert compare.time_unit([SimpleNamespace(timing=[{"step": 1, "seconds": seconds}])])[0] == unit
