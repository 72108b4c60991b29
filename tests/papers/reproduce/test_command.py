"""`twofold reproduce`: configurations of tables, numbers from records, and runs that are interrupted and resumed."""

import json
import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from standard_files import cifar10_contents
from twofold.cli import app
from twofold.config import dump, flat, resolve
from twofold.data.hold_out import hold_out
from twofold.data.open import defaults_of
from twofold.data.registry import NAMED_SETS
from twofold.display import Display
from twofold.errors import Interrupted, TwofoldError
from twofold.evaluate.probes import linear_accuracy
from twofold.keys import coerce
from twofold.methods import CATALOG, schema
from twofold.runs.folder import RunFolder
from twofold.runs.weights import load_encoder
from twofold.verbs import pretrain
from twofold_papers.reproduce import runner
from twofold_papers.reproduce.measured import lines_of_measurements
from twofold_papers.reproduce.published import Conditions, Published
from twofold_papers.reproduce.readings import (
    DISTINCT,
    ENTROPY,
    LINEAR,
    MEMORY,
    condition_number,
    online_at,
    saturation_step,
)
from twofold_papers.reproduce.record import has_todays_defaults, read_records, record_name, spectrum_summary
from twofold_papers.reproduce.runner import Budget, carry_out
from twofold_papers.reproduce.show import Cell, lines_of_jobs, lines_of_records
from twofold_papers.reproduce.table import Job, Probe, Row, Setting, Table, job_of, jobs_of
from twofold_papers.reproduce.tables import TABLES

TINY = {"data": "digits", "encoder": "conv", "projector": "32,16", "predictor_width": "32", "batch_size": "256"}
RECORDS = Path(__file__).parents[3] / "records"
ROWS = [(table, row) for table in TABLES.values() for row in table.rows]
RUNNABLE = [(table, row) for table, row in ROWS if row.method in CATALOG and table.data.startswith("cifar10")]
SMALL = Table(
    name="small",
    paper="frossl",
    number="Table 0",
    title="a test",
    columns=(LINEAR, online_at(1)),
    epochs=1,
    data="digits",
    rows=[
        Row(
            "one",
            "frossl",
            {"projector": (32, 16)},
            {LINEAR.title: [Published(12.34, 0.5, 1), Published(56.7, epochs=2)]},
        ),
        Row("other", "frossl", {"projector": (32, 8)}),
    ],
)


def do(jobs: list[Job], out: Path, seconds: float | None = None) -> runner.Outcome:
    with Budget(seconds) as budget:
        return carry_out(
            jobs, out=out, records=[out / "records"], budget=budget, display=Display(quiet=True), commit="abc"
        )


@pytest.fixture(scope="module")
def cifar10(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of CIFAR-10, with fewer images but enough for every batch size."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "cifar-10-batches-py").mkdir()
    for name, content in cifar10_contents(per_batch=500).items():
        (folder / "cifar-10-batches-py" / name).write_bytes(pickle.dumps(content))
    return folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Settings for runs of one second: 60 images of eight pixels, light or dark."""
    path = tmp_path_factory.mktemp("tiny") / "tiny.npz"
    labels = np.arange(60) % 2
    noise = np.random.default_rng(0).integers(0, 100, (60, 8, 8), dtype=np.uint8)
    np.savez(path, images=noise + (100 * labels[:, None, None]).astype(np.uint8), labels=labels)
    return {"data": str(path), "batch_size": "16"}


def wanted(table: Table, row: Row) -> dict[str, Any]:
    return {setting.key: setting.value for setting in table.settings} | dict(row.settings)


@pytest.mark.parametrize("table, row", RUNNABLE, ids=lambda each: each.name)
def test_a_run_has_the_settings_of_its_row_and_the_name_of_its_record(table: Table, row: Row, cifar10: Path) -> None:
    """The configuration that the library resolves has every value of the table and the row."""
    job = job_of(table, row, row.epochs or table.epochs, 3, {})
    assert not job.refused
    config, _ = pretrain.configure(overrides=dict(job.keys) | {"data_dir": cifar10})
    saved = json.loads(dump(config))
    assert record_name(saved) == job.name
    known, values = schema(row.method), saved["values"]
    for key, value in wanted(table, row).items():
        if key in known:
            in_json = json.loads(json.dumps(coerce(value, known[key].hint)))
            assert values[key] == in_json, key
    assert (values["epochs"], values["seed"]) == (row.epochs or table.epochs, 3)
    assert not row.settings.keys() - known.keys()


def test_a_name_contains_only_settings_that_differ_from_the_recipe() -> None:
    table = TABLES["isoloss-2"]
    row = next(row for row in table.rows if row.name == "IsoLoss, authors' code")
    assert (row.settings["optimizer"], row.settings["correlation_momentum"]) == ("sgd", 0.5)
    assert job_of(table, row, 100, 0, {}).name == "cifar10-isoloss-100-teacher_momentum-None"
    # By default, a run of 30 epochs has three warm-up epochs; the paper has ten.
    shorter = "cifar10-isoloss-30-lr-3.0-teacher_momentum-None-warmup_epochs-10.0-seed2"
    assert job_of(table, row, 30, 2, {"lr": "3"}).name == shorter


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_row_names_are_unique_and_published_numbers_belong_to_columns(table: Table) -> None:
    assert len({row.name for row in table.rows}) == len(table.rows)
    titles = {column.title for column in table.columns}
    assert all(row.published.keys() <= titles for row in table.rows)


def test_rows_that_share_a_run_have_the_same_probes() -> None:
    """The record of the first table must serve the others too."""
    probes: dict[str, set[Any]] = {}
    for table in TABLES.values():
        for job in jobs_of(table, table.rows):
            if not job.refused:
                probes.setdefault(job.name, set()).add(tuple(job.row.probes))
    assert all(len(each) == 1 for each in probes.values())


def test_probes_of_a_finished_run(tmp_path: Path, tiny: dict[str, str]) -> None:
    """After the projector and on other images, which must not change the normalisation of the run."""
    bright = tmp_path / "bright.npz"
    generator = np.random.default_rng(1)
    np.savez(bright, images=generator.integers(150, 255, (60, 8, 8), dtype=np.uint8), labels=np.arange(60) // 7 % 2)
    probes = (Probe("after", projected=True), Probe("bright", data=str(bright)), Probe("again"))
    row = replace(SMALL.rows[0], probes=probes, settings={"projector": (32, 2)})
    (job,) = jobs_of(SMALL, [row], user=tiny)
    do([job], tmp_path)
    record = read_records(tmp_path / "records")[job.name]
    assert record["probes"].keys() == {"after", "bright", "again"}
    linear = LINEAR.read(record)
    assert linear is not None
    assert 100 * record["probes"]["again"] == pytest.approx(linear)

    encoder = load_encoder(tmp_path / job.name)
    with np.load(bright) as content:
        images, labels = torch.from_numpy(content["images"])[:, None], torch.from_numpy(content["labels"])
    held = hold_out(torch.arange(60), labels, 0.2)
    with torch.no_grad():
        features = encoder(encoder.preprocess(images))
    expected = linear_accuracy(features[~held], labels[~held], features[held], labels[held], classes=2)
    assert record["probes"]["bright"] == pytest.approx(expected)


def test_alpha_cl_1_has_the_published_numbers() -> None:
    published = {
        row.name: [each.value for each in row.published[LINEAR.title]]
        for row in TABLES["alpha-cl-1"].rows
        if row.published
    }
    assert published["InfoNCE"] == [84.06, 87.63, 87.86, 78.46, 82.49, 83.70, 55.70, 59.71, 59.89]
    assert published["α-CL-direct"][:3] == [85.11, 87.93, 88.09]
    assert published["quadratic loss"][:3] == [63.59, 73.02, 73.58]
    assert {row.method for row in TABLES["alpha-cl-1"].rows} == {"quadratic", "contrastive", "alpha-cl"}


def test_a_row_with_an_unknown_key_or_method_is_refused() -> None:
    missing = [Row("a", "no-such-method"), Row("b", "frossl", {"no_such_key": 1})]
    first, second = jobs_of(replace(SMALL, rows=missing), missing)
    assert "no-such-method" in first.refused
    assert "no_such_key" in second.refused


def test_recorded_runs_are_skipped(tmp_path: Path, tiny: dict[str, str]) -> None:
    jobs = jobs_of(SMALL, SMALL.rows, seeds=(0, 1), user=tiny)
    assert len({job.name for job in jobs}) == 4
    assert [job.name for job in jobs if "seed1" in job.name] == [job.name for job in jobs[2:]]
    assert do(jobs[:1], tmp_path).done == [jobs[0].name]
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    outcome = do(jobs[:3], tmp_path)
    assert outcome.done == [jobs[1].name, jobs[2].name]
    assert all(path.stat().st_mtime_ns == then for path, then in before.items())
    assert not list(tmp_path.rglob("checkpoints"))

    records = read_records(tmp_path / "records")
    assert all(record_name(each["config"]) == name for name, each in records.items())
    results = [json.loads((tmp_path / job.name / "results.json").read_text())["table"][0] for job in jobs[:3]]
    first, second = lines_of_jobs(SMALL, jobs, records)
    pair = [100 * results[0]["linear_accuracy"], 100 * results[2]["linear_accuracy"]]
    assert (first.cells[0].published, list(first.seeds)) == ("", [0, 1])  # the number is for other images
    spread = abs(pair[0] - pair[1]) / math.sqrt(2)
    assert first.cells[0].ours == f"{sum(pair) / 2:.2f} ± {spread:.2f}"
    assert second.cells[0].ours == f"{100 * results[1]['linear_accuracy']:.2f}"
    assert second.cells[1].ours == f"{100 * records[jobs[1].name]['online_accuracy']['1.0']:.2f}"


def test_a_run_stopped_by_the_budget_is_finished_by_the_next_call(
    tmp_path: Path, tiny: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = jobs_of(SMALL, SMALL.rows, epochs=20, user=tiny | {"batch_size": "4"})
    assert do(jobs, tmp_path, seconds=10).left == [job.name for job in jobs]  # too little time to start
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(runner, "LEAST_SECONDS", -math.inf)
    assert do(jobs[:1], tmp_path, seconds=0).left == [jobs[0].name]
    run = tmp_path / jobs[0].name
    (checkpoint,) = (run / "checkpoints").glob("step-*")
    assert 0 < int(checkpoint.name.removeprefix("step-")) < 20 * 12
    assert not (tmp_path / "records").exists()

    assert do(jobs[:1], tmp_path).done == [jobs[0].name]
    steps = [line["step"] for line in RunFolder(run).read("metrics.jsonl")]
    assert steps == sorted(set(steps))
    assert steps[-1] == 20 * 12


def test_records_and_runs_with_other_defaults_are_replaced(tmp_path: Path, tiny: dict[str, str]) -> None:
    (job,) = jobs_of(SMALL, SMALL.rows[:1], user=tiny)
    do([job], tmp_path)
    for path in (tmp_path / "records" / f"{job.name}.json", tmp_path / job.name / "config.json"):
        kept = json.loads(path.read_text())
        values = kept.get("config", kept)["values"]
        assert values["lars_eta"] == 0.02
        values["lars_eta"] = 0.04  # as if this had been the default at that time
        path.write_text(json.dumps(kept))
    (tmp_path / job.name / "mine.txt").write_text("kept")
    assert do([job], tmp_path).done == [job.name]
    assert read_records(tmp_path / "records")[job.name]["config"]["values"]["lars_eta"] == 0.02
    assert (tmp_path / f"{job.name}.old-1" / "mine.txt").exists()  # nothing is deleted


@pytest.mark.parametrize("data", NAMED_SETS)
def test_jobs_override_the_defaults_of_every_data_set(data: str) -> None:
    """A new run also counts as one with the current defaults, whatever the defaults of the data set are."""
    (job,) = jobs_of(SMALL, SMALL.rows[:1], user={"data": data, "encoder": "resnet34"})
    table = replace(SMALL, settings=[Setting("encoder", "resnet18", "")])
    (other,) = jobs_of(table, table.rows[:1], user={"data": data})
    usual = defaults_of(data).get("encoder", "resnet18")
    assert other.keys.get("encoder", usual) == "resnet18"
    keys = schema("frossl")
    suited = {key: value for key, value in defaults_of(data).items() if key in keys}
    layers = {"method": CATALOG["frossl"].recipe_for({}), "data": suited, "user": job.keys}
    made = resolve(keys, layers)
    assert has_todays_defaults({"config": {"values": flat(made), "origin": made.origin}})


def test_folders_with_the_same_name_have_different_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [jobs_of(SMALL, SMALL.rows[:1], user={"data": str(tmp_path / place / "images")})[0].name for place in "ab"]
    assert len(set(names)) == 2
    assert all(name.startswith("images-") for name in names)
    monkeypatch.chdir(tmp_path / "..")
    (job,) = jobs_of(SMALL, SMALL.rows[:1], user={"data": f"{tmp_path.name}/a/images"})
    assert job.name == names[0]


def test_a_run_of_another_process_is_left_out(tmp_path: Path, tiny: dict[str, str]) -> None:
    jobs = jobs_of(SMALL, SMALL.rows, user=tiny)
    with runner.claimed(tmp_path / ".claims" / jobs[0].name) as ours:
        assert ours
        outcome = do(jobs, tmp_path)
    assert (outcome.elsewhere, outcome.done) == ([jobs[0].name], [jobs[1].name])
    outcome.left = ["late", "never"]
    outcome.leave_out({jobs[0].name: {}, "late": {}})  # another process finished them
    assert (outcome.elsewhere, outcome.left) == ([], ["never"])


def test_a_failed_run_is_recorded_and_the_next_one_runs(tmp_path: Path, tiny: dict[str, str]) -> None:
    rows = [Row("bad", "frossl", {"projector": (32, 16), "lr": 1e30}), SMALL.rows[0]]
    table = replace(SMALL, rows=rows)
    jobs = jobs_of(table, rows, user=tiny | {"warmup_epochs": "0", "optimizer": "sgd"})
    assert do(jobs, tmp_path).done == [job.name for job in jobs]
    bad, good = lines_of_jobs(table, jobs, read_records(tmp_path / "records"))
    assert "not finite" in bad.note
    assert bad.cells[0].ours == "—"
    assert float(good.cells[0].ours) > 0


def test_published_numbers_have_the_same_epochs_as_the_run() -> None:
    def cell(epochs: int) -> tuple[str, str]:
        (line,) = lines_of_jobs(SMALL, jobs_of(SMALL, SMALL.rows[:1], epochs=epochs), {})
        return line.cells[0].published, line.cells[0].condition

    assert cell(1) == ("12.34 ± 0.50", "")
    assert cell(2) == ("56.70", "")
    assert cell(7) == ("56.70", "2 epochs")


def record_of(
    table: Table, row: Row, epochs: int, seed: int, accuracy: float, data: str = "cifar10"
) -> tuple[str, dict[str, Any]]:
    job = job_of(table, row, epochs, seed, {} if data == table.data else {"data": data})
    values = {"epochs": epochs, "seed": seed, "method": row.method, "data": data, "encoder": job.run.encoder}
    results = {"table": [{"name": "trained", "linear_accuracy": accuracy}], "memory": 12.0}
    return job.name, {"config": {"values": values}, "results": results, "online_accuracy": {}, "last": {}}


def test_records_of_all_seeds_belong_to_their_row() -> None:
    table = TABLES["alpha-cl-1"]
    direct, other = (next(row for row in table.rows if row.name == name) for name in ("α-CL-direct", "InfoNCE"))
    records = dict(
        record_of(table, *each)
        for each in [
            *[(direct, 100, 0, 0.85), (direct, 100, 4, 0.87), (direct, 300, 0, 0.9), (other, 17, 0, 0.5)],
            *[(direct, 100, 0, 0.51, "cifar100"), (direct, 100, 0, 0.52, "digits")],
        ]
    )
    lines = {(line.name, line.epochs): line for line in lines_of_records(table, records)}
    assert lines["α-CL-direct", 100].cells[0].ours == "86.00 ± 1.41"
    assert lines["α-CL-direct", 300].cells[0].published == "87.93 ± 0.16"
    assert lines["α-CL-direct, CIFAR-100", 100].cells[0] == Cell("57.63 ± 0.07", "51.00")
    assert lines["α-CL-direct, digits", 100].cells[0] == Cell("", "52.00")
    assert lines["InfoNCE", 100].cells[0].ours == "not run yet"
    assert len(lines) == len(table.rows) + 3  # 17 epochs are neither published nor those of the table


def test_spectrum_quantities() -> None:
    def eigenvalues(step: int) -> list[float]:
        slow = min(1.0, step / 8) * 0.5
        return [2.0] * 13 + [slow] + [0.01] * 2

    lines = [{"step": step, "of": "embeddings", "eigenvalues": eigenvalues(step)} for step in (1, 2, 4, 7, 8, 16)]
    record = {"spectrum": spectrum_summary(lines)}
    assert condition_number(14).read(record) == 4.0
    assert saturation_step(14).read(record) == 8  # 7/8 of the final value is below nine tenths
    assert DISTINCT.read(record) == 14
    parts = [value / 26.52 for value in eigenvalues(16)]
    assert ENTROPY.read(record) == pytest.approx(-sum(part * math.log(part) for part in parts), rel=1e-3)
    assert condition_number(14).read({}) is None
    assert condition_number(14).read(record | {"failed": "not finite from step 6 on"}) is None
    assert MEMORY.read({"results": {}}) is None


def test_the_command_runs_a_row_and_writes_its_page(tmp_path: Path, tiny: dict[str, str]) -> None:
    settings = tiny | {"epochs": "1", "encoder": "conv", "projector": "32,16", "predictor_width": "32"}
    words = ["reproduce", "isoloss-2", "--row", "simsiam", "--out", str(tmp_path / "out")]
    words += [f"{key}={value}" for key, value in settings.items()]
    result = CliRunner().invoke(app, words, env={"COLUMNS": "200"}, catch_exceptions=False)
    (record,) = (tmp_path / "out" / "records").iterdir()
    accuracy = 100 * json.loads(record.read_text())["results"]["table"][0]["linear_accuracy"]
    assert f"{accuracy:.2f}" in result.stdout
    assert "90.7 ± 0.2" not in result.stdout  # the number for CIFAR-10
    page = (tmp_path / "out" / "isoloss-2.html").read_text()
    assert "90.7 &#177; 0.2" not in page
    assert f"{accuracy:.2f}" in page
    assert "projector=32,16" in page
    assert "already have a record" not in result.stdout
    again = CliRunner().invoke(app, words, env={"COLUMNS": "200"}, catch_exceptions=False)
    assert "SimSiam" in again.stdout
    assert "already have a record and are skipped" in again.stdout
    assert "training" not in again.stdout


def test_output_fits_a_narrow_terminal(tmp_path: Path) -> None:
    """Names break between words, notes are below the table, and a table without requested rows is not shown."""
    words = ["reproduce", "isoloss-2", "alpha-cl-4", "--row", "IsoLoss, a*", "--row", "SimSiam", "--epochs", "7"]
    words += ["--budget", "0", "--out", str(tmp_path / "out")]
    lines = CliRunner().invoke(app, words, env={"COLUMNS": "70"}, catch_exceptions=False).stdout.splitlines()
    names = " ".join(line[:10].strip() for line in lines if line.startswith(" ")).split()
    assert names == ["SimSiam", "IsoLoss,", "authors'", "code"]
    assert "SimSiam: BYOL without EMA, as in the authors' code" in lines
    assert not any(line.startswith("alpha-cl-4") for line in lines)
    left = next(line for line in lines if line.startswith("not finished in time: "))
    assert left.count("cifar10-") == 2


@pytest.mark.parametrize(
    "words, message",
    [
        (["isoloss2"], "did you mean 'isoloss-2'?"),
        (["isoloss-2", "epocs=1"], "did you mean 'epochs'?"),
        (["isoloss-2", "--row", "Simsia"], "did you mean 'SimSiam'?"),
        (["isoloss-2", "--seeds", "a"], "--seeds a: expected different whole numbers"),
        (["isoloss-2", "--epochs", "1", "epochs=2"], "epochs is given twice"),
        (["isoloss-2", "method=frossl"], "the table sets the method"),
        (["isoloss-2", "epochs=0"], "epochs=0 is not a whole number of at least 1"),
        (["isoloss-2", "epochs=5,6"], "epochs=5,6 is not a whole number"),
    ],
)
def test_wrong_arguments_are_refused(words: list[str], message: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["reproduce", *words, "--out", str(tmp_path / "out")])
    assert isinstance(result.exception, TwofoldError)
    assert message in str(result.exception)
    assert not list(tmp_path.iterdir())


def test_a_row_shows_its_newest_measurement(tmp_path: Path) -> None:
    def write(name: str, benchmark: str, date: str, *rows: dict[str, Any]) -> None:
        (tmp_path / f"{name}.json").write_text(json.dumps({"benchmark": benchmark, "date": date, "rows": rows}))

    write("a", "gradient-cosine", "2026-02-01", {"encoder": "resnet18", "b": 64, "batch": 0.5, "theory": 0.25})
    write("b", "gradient-cosine", "2026-01-01", {"encoder": "resnet18", "b": 64, "batch": 0.75})
    write("c", "other", "2026-03-01", {"encoder": "resnet18", "b": 64, "batch": 0.9})
    first, second, *_ = lines_of_measurements(TABLES["s-diet-2"], tmp_path)
    assert [cell.ours for cell in first.cells] == ["0.5000", "—", "0.2500"]
    assert (first.cells[0].published, second.cells[0].published) == ("0.9944", "0.9965")
    assert [cell.ours for cell in second.cells] == ["not run yet", "", ""]


def test_the_list_counts_finished_runs() -> None:
    result = CliRunner().invoke(app, ["reproduce", "--list"], env={"COLUMNS": "200"}, catch_exceptions=False)
    shown = {line.split()[0]: line.split()[-2:] for line in result.stdout.splitlines()[1:] if line.strip()}
    done = read_records(RECORDS)
    for name, table in TABLES.items():
        if table.benchmark:
            assert shown[name][0] == str(len(table.rows))
            continue
        names = [job.name for job in jobs_of(table, table.rows)]
        assert shown[name] == [str(len(names)), str(len([each for each in names if each in done]))]


@pytest.mark.full
@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_table_end_to_end(table: Table, tmp_path: Path) -> None:
    # Probes on other images need files that the tests do not have.
    rows = [replace(row, probes=[probe for probe in row.probes if probe.data is None]) for row in table.rows]
    linear = {"predictor_width": "0"} if any(probe.alignment for row in rows for probe in row.probes) else {}
    table = replace(table, rows=rows)
    # Digits are not cropped by default, and some rows set how crops are resized.
    crops = {"augment.crop_scale": "0.5,1"} if table.name == "long" else {}
    jobs = jobs_of(table, rows, epochs=1, user=TINY | crops | linear)
    runnable = [job for job in jobs if not job.refused]
    outcome = do(runnable, tmp_path)
    assert not outcome.refused
    records = read_records(tmp_path / "records")
    assert records.keys() == {job.name for job in runnable}
    for line in lines_of_jobs(table, runnable, records):
        assert {cell.ours for cell in line.cells} - {"", "—", "not run yet"}, line.name


def test_no_run_follows_one_that_the_user_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise Interrupted(tmp_path, 2)

    monkeypatch.setattr(runner, "carried_out", stopped)
    table = Table("t", "twofold", "1", "a table", (), (), 1)
    jobs = [Job(table, Row(name, "frossl"), Conditions("cifar10", "resnet18", 1), 0, {}, name) for name in "ab"]
    with runner.Budget(None) as budget, pytest.raises(Interrupted):
        runner.carry_out(jobs, out=tmp_path, records=[tmp_path / "records"], budget=budget, display=Display(quiet=True))
