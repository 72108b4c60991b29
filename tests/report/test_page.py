"""The report page of a run: its texts, its safety, and its charts in a browser."""

import json
import math
import re
from itertools import pairwise

import pytest
from PIL import Image

from browser import CHROMIUM, coordinates, elements, paths, screenshot, texts, visit, width_needed
from fake_runs import RESULTS, VERDICT, blob, fake_run, finished_run, pictured_run, spectrum, steps_of
from twofold.errors import TwofoldError
from twofold.report.charts import thin
from twofold.report.page import render, repeating, total_seconds, write_report
from twofold.runs.folder import RunFolder
from twofold.text import duration

CHARTS = (
    "loss",
    "online_accuracy",
    "embeddings_eigenvalues",
    "features_eigenvalues",
    "effective_rank",
    "final_spectrum",
    "speed",
)
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium to run the scripts of the page")


# ---------------------------------------------------------------------------------------------- the text


def test_the_report_is_one_self_contained_file(tmp_path):
    folder = finished_run(tmp_path / "run")
    path = write_report(folder)
    assert path == tmp_path / "run" / "report.html"
    html = path.read_text()
    assert not list(path.parent.glob(".*"))
    assert html.isascii()
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "")
    for element in elements(html):
        assert element.tag != "img"
        assert "src" not in element.attributes
        assert element.attributes.get("href", "data:").startswith("data:")
    assert len(html) < 200_000


def test_the_page_states_the_facts_of_the_run(tmp_path):
    html = render(finished_run(tmp_path / "run"))
    assert texts(html, "h1") == ["frossl on digits"]
    facts = texts(html, "span")
    for fact in (
        "40 epochs",
        "1,437 training images",
        "360 test images",
        "cpu",
        "1 min 11 s of training and evaluation",
        "seed 7",
        "torch 2.13.0",
    ):
        assert fact in facts
    assert RESULTS["command"] in texts(html, "code")


def test_whether_training_helped_comes_before_the_verdict(tmp_path):
    folder = finished_run(tmp_path / "run")
    gain = {
        "kind": "did not help",
        "sentence": "Training did not help.",
        "by": "labels",
        "evidence": ["raw pixels: linear accuracy +1.0 points"],
        "remedy": "Train for more steps.",
        "comparisons": [],
        "surpassed_by": [],
    }
    folder.write(
        "results.json",
        json.dumps(RESULTS | {"verdict": VERDICT, "gain": gain, "kept": {"step": 0, "sentence": "an earlier one"}}),
    )
    html = render(folder)
    assert texts(html, "h2")[:2] == ["Training did not help.", VERDICT["sentence"]]
    assert texts(html, "li")[0] == gain["evidence"][0]
    assert gain["remedy"] in texts(html, "p")
    assert "are paired over the held-out images" in html
    assert "is an earlier one." in texts(html, "p")  # after the name of the file, which is code
    tones = {e.attributes.get("id"): e.attributes.get("class") for e in elements(html) if e.tag == "section"}
    assert (tones["gain"], tones["verdict"]) == ("verdict bad", "verdict bad")


def test_the_verdict_comes_first_if_there_is_one(tmp_path):
    folder = finished_run(tmp_path / "run")
    assert 'id="verdict"' not in render(folder)
    folder.write("results.json", json.dumps(RESULTS | {"verdict": VERDICT}))
    html = render(folder)
    assert html.index('id="verdict"') < html.index('id="numbers"')
    assert texts(html, "h2")[0] == VERDICT["sentence"]
    assert texts(html, "li") == VERDICT["evidence"]
    assert VERDICT["remedy"] in texts(html, "p")
    assert "those of the embeddings of augmented training images" in html
    # The accuracies are better than before training, so a collapse of the embeddings alone is no failure.
    assert "verdict open" in [e.attributes.get("class") for e in elements(html)]
    folder.write("results.json", json.dumps(RESULTS | {"verdict": VERDICT, "table": []}))
    assert "verdict bad" in [e.attributes.get("class") for e in elements(render(folder))]
    folder.write("results.json", json.dumps(RESULTS | {"verdict": {"kind": "healthy", "sentence": "Well."}}))
    html = render(folder)
    assert "verdict good" in [e.attributes.get("class") for e in elements(html)]
    assert "those of the embeddings" not in html


def test_speed_time_and_memory_are_stated(tmp_path):
    folder = finished_run(tmp_path / "run")
    folder.write("results.json", json.dumps(RESULTS | {"memory": 1234.5, "process_memory": 700.2}))
    html = render(folder)
    named = dict(zip(texts(html, "dt")[4:], texts(html, "dd")[9:], strict=True))
    assert named == {
        "training": "48 s",
        "training and evaluation": "1 min 11 s",
        "images per second, median": "2,560",
        "peak GPU memory": "1,234 MiB",
        "peak process memory": "700 MiB",
        "device": "cpu",
    }


def test_the_configuration_starts_with_the_values_of_the_user(tmp_path):
    html = render(finished_run(tmp_path / "run"))
    rows = [e for e in elements(html) if e.attributes.get("scope") == "row"][3:]
    assert ["".join(row.text) for row in rows] == ["data", "epochs", "lr", "scaled_lr", "method", "seed", "betas"]
    origins = [e for e in elements(html) if (e.attributes.get("class") or "").startswith("origin")]
    assert ["".join(e.text) for e in origins] == ["user", "user", "method", "derived", "default", "default", "default"]
    assert "0.9,0.999" in texts(html, "td")


def test_data_dir_is_listed_only_for_named_datasets_or_if_the_user_set_it(tmp_path):
    def listed(name, **values):
        return "data_dir" in texts(render(fake_run(tmp_path / name, done=0, data_dir="/sets", **values)), "th")

    assert listed("set", data="cifar10")
    assert not listed("folder", data="/home/me/photos")
    asked = fake_run(tmp_path / "asked", done=0, data="/home/me/photos", data_dir="/sets")
    config = json.loads(asked.config_text())
    asked.write("config.json", json.dumps(config | {"origin": {"data_dir": "user"}}))
    assert "data_dir" in texts(render(asked), "th")


@pytest.mark.parametrize(
    "recorded, shown",
    [
        (
            "twofold pretrain '/my photos' --method frossl --out 'runs/my photos' epochs=3 'data_dir=/my sets'",
            "twofold pretrain '/my photos' --method frossl epochs=3 'data_dir=/my sets'",
        ),
        ("twofold pretrain digits --method frossl", "twofold pretrain digits --method frossl"),
        ("twofold pretrain it's --out here", "twofold pretrain it's --out here"),
        (None, None),
    ],
)
def test_the_command_to_reproduce_a_run_omits_its_folder(recorded, shown):
    assert repeating(recorded) == shown


def test_page_states_if_a_run_was_started_from_python(tmp_path):
    arrays = finished_run(tmp_path / "arrays")
    arrays.write("results.json", json.dumps(RESULTS | {"command": None}))
    assert "started from Python" in render(arrays)
    assert "started from Python" not in render(finished_run(tmp_path / "shell"))
    assert "started from Python" not in render(fake_run(tmp_path / "stopped", done=200))


def test_an_unfinished_run_shows_its_progress_and_how_to_resume(tmp_path):
    html = render(fake_run(tmp_path / "run", done=84))
    assert "7 of 40 epochs" in texts(html, "span")
    assert f"twofold resume {tmp_path / 'run'}" in texts(html, "code")
    assert "Nothing was recorded yet." in texts(render(fake_run(tmp_path / "nothing", done=0)), "p")


def test_a_run_without_labels_has_no_accuracies(tmp_path):
    html = render(fake_run(tmp_path / "run", labels=False))
    assert "no labels" in html
    assert set(blob(html)) == set(CHARTS) - {"online_accuracy"}


def test_curves_contain_the_recorded_values(tmp_path):
    folder = finished_run(tmp_path / "run")
    charts, metrics = blob(render(folder)), folder.read("metrics.jsonl")
    assert tuple(charts) == CHARTS
    total, variance, invariance = charts["loss"]["series"]
    assert [line["name"] for line in (total, variance, invariance)] == ["total", "variance", "invariance"]
    assert invariance["x"] == [record["step"] for record in metrics]
    assert invariance["y"] == pytest.approx([record["loss/invariance"] for record in metrics], rel=1e-4)
    held_out = charts["online_accuracy"]["series"][1]
    assert held_out["x"] == [5, 10, 15, 20, 25, 30, 35, 40]
    assert held_out["y"][-1] == pytest.approx(100 * (0.99 - 0.9 / (1 + 480 / 25)), abs=1e-2)
    features = {line["name"]: line for line in charts["features_eigenvalues"]["series"]}
    assert len(features) <= 20
    assert {"index 1", "index 2", "index 64"} <= set(features)
    assert features["index 64"]["y"][3] == pytest.approx(spectrum(64, features["index 64"]["x"][3], 2)[63], rel=1e-4)
    assert charts["final_spectrum"]["series"][0]["y"][127] == pytest.approx(spectrum(128, 480, 4)[127], rel=1e-4)


def test_a_single_term_is_not_drawn_twice(tmp_path):
    folder = RunFolder.create(tmp_path / "run", json.dumps({"values": {"method": "simclr", "data": "digits"}}))
    folder.append("metrics.jsonl", {"step": 1, "epoch": 1, "loss": 2.0, "loss/infonce": 2.0})
    assert [line["name"] for line in blob(render(folder))["loss"]["series"]] == ["total"]


def test_long_runs_make_small_pages(tmp_path):
    folder = RunFolder.create(tmp_path / "run", json.dumps({"values": {"method": "x", "data": "y", "epochs": 20000}}))
    lines = [
        json.dumps({"step": s, "epoch": s, "loss": 1 / s, "loss/a": 2 / s, "loss/b": -1 / s}) for s in range(1, 20001)
    ]
    folder.write("metrics.jsonl", "\n".join(lines) + "\n")
    eigenvalues = [1 / rank for rank in range(1, 4097)]
    for step in range(1, 65):
        folder.append("spectrum.jsonl", {"step": step, "of": "embeddings", "eigenvalues": eigenvalues})
    html = render(folder)
    assert len(html) < 300_000
    steps = blob(html)["loss"]["series"][0]["x"]
    assert steps[:5] == [1, 2, 3, 4, 5]
    assert steps[-1] == 20000
    assert max(b - a for a, b in pairwise(steps)) < 100


@pytest.mark.parametrize("count", [0, 1, 2, 10, 11, 1000])
def test_thin_keeps_both_ends_and_at_most_n_points(count):
    kept = thin(count, 10)
    assert kept == sorted(set(kept))
    assert len(kept) == min(count, 10) or len(kept) >= 5
    assert len(kept) <= 10
    assert not count or (kept[0], kept[-1]) == (0, count - 1)


def test_time_adds_up_over_resumed_parts():
    timing = [{"seconds": s} for s in (1.0, 5.0, 2.0, 9.0)]
    assert total_seconds(timing, None) == 14
    assert total_seconds(timing, 12.0) == 17
    assert total_seconds([], None) == 0
    assert [duration(s) for s in (0.123, 52.4, 59.7, 200, 3599.6, 7500)] == [
        "0.12 s", "52 s", "1 min", "3 min 20 s", "1 h", "2 h 5 min"
    ]  # fmt: skip


def test_values_that_are_not_numbers_are_left_out(tmp_path):
    folder = fake_run(tmp_path / "run", done=24)
    folder.append("metrics.jsonl", {"step": 25, "epoch": 2.1, "loss": math.nan, "loss/variance": math.inf})
    assert blob(render(folder))["loss"]["series"][0]["x"][-1] == 24


def test_names_cannot_break_out_of_the_page(tmp_path):
    evil = "</script><script>alert(1)</script><b>&"
    folder = fake_run(tmp_path / "run", data=evil, done=24)
    folder.append("metrics.jsonl", {"step": 25, "epoch": 2.1, "loss": 1.0, f"loss/{evil}": 0.5})
    folder.write("results.json", json.dumps(RESULTS | {"command": evil, "table": [{"name": evil, "knn_accuracy": 1}]}))
    html = render(folder)
    assert [e.tag for e in elements(html)].count("script") == 2
    assert "b" not in [e.tag for e in elements(html)]
    assert blob(html)["loss"]["series"][-1]["name"] == evil
    assert evil in texts(html, "code")
    assert evil in texts(html, "th")


def test_the_title_names_the_last_part_of_a_path(tmp_path):
    html = render(fake_run(tmp_path / "run", data="/home/me/photos/鳥", done=24))
    assert texts(html, "h1") == ["frossl on 鳥"]


def test_a_damaged_configuration_file_is_named(tmp_path):
    folder = RunFolder.create(tmp_path / "run", "{")
    with pytest.raises(TwofoldError, match=r"config\.json is not JSON"):
        write_report(folder)
    folder.write("config.json", "[]")
    with pytest.raises(TwofoldError, match=r"config\.json does not have the contents that Twofold writes"):
        write_report(folder)


# ---------------------------------------------------------------------------------------------- the picture


def assert_drawn(dom: str, charts: tuple[str, ...], html: str) -> None:
    drawn, described = paths(dom), blob(html)
    assert tuple(drawn) == charts
    for chart, lines in drawn.items():
        assert len(lines) == len(described[chart]["series"])
        assert sorted(len(coordinates(line)) for line in lines) == sorted(
            len(s["y"]) for s in described[chart]["series"]
        )
        assert all(-4 <= value <= 2000 for line in lines for point in coordinates(line) for value in point)


@in_browser
def test_every_chart_is_drawn(tmp_path):
    report = write_report(finished_run(tmp_path / "run"))
    seen = visit(report)
    assert seen.console == []
    assert_drawn(seen.dom, CHARTS, report.read_text())
    assert [e.inside for e in elements(seen.dom) if e.tag == "svg"] == [(chart,) for chart in CHARTS]
    # On log-log axes, the largest eigenvalue is above the smallest: its y in pixels is smaller.
    last, *_, first = paths(seen.dom)["embeddings_eigenvalues"]
    assert all(a[1] < b[1] for a, b in zip(coordinates(first), coordinates(last), strict=True))
    axis = dict(zip(steps_of(480), [x for x, _ in coordinates(first)], strict=True))
    assert (axis[24] - axis[1]) / (axis[480] - axis[1]) == pytest.approx(math.log(24) / math.log(480), abs=1e-3)
    assert {"1", "10", "100"} <= {"".join(e.text) for e in elements(seen.dom) if e.inside == ("effective_rank",)}


@in_browser
@pytest.mark.parametrize(
    "done, labels, charts", [(84, False, CHARTS[:1] + CHARTS[2:]), (1, True, CHARTS), (0, True, ())]
)
def test_runs_that_stopped_or_have_no_labels_are_drawn_too(tmp_path, done, labels, charts):
    report = write_report(fake_run(tmp_path / "run", done=done, labels=labels))
    seen = visit(report)
    assert seen.console == []
    assert_drawn(seen.dom, charts, report.read_text())


@in_browser
def test_a_collapsed_spectrum_and_html_in_names_are_drawn(tmp_path):
    folder = fake_run(tmp_path / "run", done=24, data="</script><img src=x onerror=console.error(1)>")
    folder.append("spectrum.jsonl", {"step": 25, "of": "embeddings", "eigenvalues": [0.5] + [1e-17] * 63 + [0.0] * 64})
    folder.append("spectrum.jsonl", {"step": 25, "of": "features", "eigenvalues": [0.0] * 64})
    folder.append("metrics.jsonl", {"step": 25, "epoch": 2.1, "loss": 1.0, "loss/<img src=x>": 0.5})
    seen = visit(write_report(folder))
    assert seen.console == []
    assert "<img" not in seen.dom.replace('"application/json"', "").split("<main>")[1].split("</main>")[0]
    drawn = paths(seen.dom)
    assert set(drawn) == set(CHARTS)
    # A log axis cannot show 0, so the line ends before it.
    assert (
        len(coordinates(drawn["embeddings_eigenvalues"][0]))
        == len(coordinates(drawn["embeddings_eigenvalues"][-1])) - 1
    )
    assert not re.search("NaN|Infinity|undefined", seen.dom.split("<main>")[1].split("</main>")[0])


HOVER = """{
const drawing = document.querySelector('[data-chart="CHART"] svg');
const frame = drawing.getBoundingClientRect();
const where = {clientX: frame.right, clientY: frame.top + frame.height / 2, bubbles: true};
drawing.dispatchEvent(new PointerEvent("pointermove", where));
}"""


@in_browser
def test_the_tooltip_shows_recorded_values(tmp_path):
    report = write_report(finished_run(tmp_path / "run"))
    seen = visit(report, "".join(HOVER.replace("CHART", chart) for chart in ("loss", "embeddings_eigenvalues")))
    assert seen.console == []
    inside = {chart: [e for e in elements(seen.dom) if e.inside == (chart,)] for chart in CHARTS}
    # At the right end, the tooltip shows the last step with its recorded values.
    assert "step 480" in ["".join(e.text) for e in inside["loss"] if e.tag == "b"]
    total, invariance = -4 - math.log(480) + 0.8 / 13, 0.8 / 13
    shown = ["".join(e.text) for e in inside["loss"] if e.tag == "i"]
    assert shown[0] == f"{total:.4g}".replace("-", "\N{MINUS SIGN}")
    assert shown[2] == f"{invariance:.4g}"
    # On a ramp, the tooltip shows one line only.
    (value,) = [float("".join(e.text)) for e in inside["embeddings_eigenvalues"] if e.tag == "i"]
    assert any(value == pytest.approx(v, rel=1e-3) for v in spectrum(128, 480, 4))


@in_browser
def test_buttons_change_the_axis_and_hide_lines(tmp_path):
    report = write_report(finished_run(tmp_path / "run"))
    click = """
    const loss = document.querySelector('[data-chart="loss"]');
    document.body.dataset.before = loss.querySelector(".line:last-of-type").getAttribute("d");
    loss.querySelector(".switch").click();
    loss.querySelectorAll(".series")[1].click();
    """
    seen = visit(report, click)
    assert seen.console == []
    invariance, total = paths(seen.dom)["loss"]
    (body,) = [element for element in elements(seen.dom) if element.tag == "body"]
    assert invariance != total
    middle = steps_of(480).index(24)
    for line, expected in ((body.attributes["data-before"], 23 / 479), (total, math.log(24) / math.log(480))):
        xs = [x for x, _ in coordinates(line or "")]
        assert (xs[middle] - xs[0]) / (xs[-1] - xs[0]) == pytest.approx(expected, abs=1e-3)


@in_browser
@pytest.mark.parametrize("scheme, dark", [(0, True), (1, False)])
def test_the_page_follows_the_preferred_colour_scheme(tmp_path, scheme, dark):
    report = write_report(finished_run(tmp_path / "run"))
    screenshot(report, tmp_path / "page.png", 800, 600, f"--blink-settings=preferredColorScheme={scheme}")
    levels = Image.open(tmp_path / "page.png").convert("L").histogram()
    shade = max(range(256), key=levels.__getitem__)
    assert shade < 40 if dark else shade > 240
    # The text is readable.
    assert sum(levels[200:] if dark else levels[:60]) > 1000


@in_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_needs_no_sideways_scrolling(tmp_path, width):
    folder = pictured_run(tmp_path / "run", data="/a/very/long/path/" + "photographsofbirds" * 5)
    folder.write("results.json", json.dumps(RESULTS | {"verdict": VERDICT | {"sentence": "unbreakable" * 30}}))
    assert width_needed(write_report(folder), width, tmp_path / "frame.html") == (width, width)


ROW_ENDS = """
const right = (element) => Math.round(element.getBoundingClientRect().right);
const groups = [...document.querySelectorAll("#views .group")], height = groups[0].getBoundingClientRect().top;
const first = groups.filter((group) => group.getBoundingClientRect().top === height);
const ends = [first.length, right(first.at(-1).lastElementChild), right(document.querySelector("#views"))];
document.body.dataset.ends = ends.join(" ");
"""


@in_browser
@pytest.mark.parametrize("width, columns", [(1200, 3), (800, 2), (500, 1)])
def test_views_fill_their_rows(tmp_path, width, columns):
    seen = visit(write_report(pictured_run(tmp_path / "run")), ROW_ENDS, f"--window-size={width},900")
    (body,) = [element for element in elements(seen.dom) if element.tag == "body"]
    count, last, edge = map(int, (body.attributes["data-ends"] or "").split())
    assert (count, last) == (columns, edge)
