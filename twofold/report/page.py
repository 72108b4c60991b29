"""The report of a run as one self-contained HTML page: verdict, accuracies, pictures, curves and configuration."""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from shlex import join, quote, split
from statistics import median
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from twofold.data.registry import NAMED_SETS
from twofold.display import Display
from twofold.errors import TwofoldError, how_to_resume
from twofold.evaluate.projection import MOST_POINTS
from twofold.keys import shown
from twofold.report import charts, gallery, headlines
from twofold.report.accuracies import accuracy_table, is_baseline, per_cent, shortfall, tested
from twofold.runs.folder import RunFolder
from twofold.text import duration, plural

Record = Mapping[str, Any]

LAYERS = ("user", "init", "chosen", "data", "method", "derived", "default")  # origins of a value, strongest first
REPORT = "twofold.report"  # the package that contains the templates, styles and scripts shared by all pages
STYLES = ("style.css", "pictures.css")
SCRIPTS = ("draw.js", "lines.js", "map.js", "table.js", "start.js")


def write_report(folder: RunFolder) -> Path:
    """Write report.html into the folder of a run, finished or not, and return its path."""
    return folder.write("report.html", render(folder))


def write_anew(folder: RunFolder, display: Display, map_points: int | None = None, data: Any = None) -> Path:
    """Write report.html, and first create the pictures of the run if they are missing.

    Creating pictures needs the images and the encoder of the run. If one of them cannot be opened, the report is
    written without pictures.

    Parameters
    ----------
    folder : RunFolder
        The run.
    display : Display
        Shows progress.
    map_points : int, optional
        Create the pictures again, with a map of this many images.
    data : optional
        Create the pictures again, with the images of the run from this new location.

    Returns
    -------
    Path
        The path of report.html.

    Raises
    ------
    TwofoldError
        If `map_points` or `data` is given and the pictures cannot be created.
    """
    folder.refuse_unwritable()
    asked = map_points is not None or data is not None
    missing = (folder.path / "encoder.safetensors").exists() and not gallery.read_pictures(folder)
    if asked or missing:
        from twofold.report import pictures  # imported here because it imports torch, which is slow

        try:
            pictures.record_run(folder, map_points, display, data)
        except TwofoldError as error:
            if asked:
                raise
            display.say(f"The report has no map and no pictures: {error}")
    return write_report(folder)


def render(folder: RunFolder) -> str:
    """Return the page as ASCII text, which every locale and every server shows correctly."""
    config, results = folder.config_record(), folder.results() or {}
    metrics, spectra, timing = (folder.read(f"{name}.jsonl") for name in ("metrics", "spectrum", "timing"))
    values, kept = config["values"], gallery.read_pictures(folder)
    history = spectra if metrics else []  # an encoder without a run has its features' spectrum only
    drawn = {
        "Training": [charts.loss_chart(metrics), charts.accuracy_chart(metrics)],
        "Spectrum": [
            charts.trajectory_chart(history, "embeddings"),
            charts.trajectory_chart(history, "features"),
            charts.trajectory_chart(history, "predictor"),
            charts.rank_chart(metrics),
            charts.final_spectrum_chart(spectra),
        ],
    }
    sections = {title: [chart for chart in group if chart["series"]] for title, group in drawn.items()}
    speed, atlas = charts.speed_chart(timing), charts.map_chart(kept, "map", "Map", "map")
    alone = [chart for chart in (atlas, speed) if chart is not None and chart.get("series", True)]
    return page(
        "page.html",
        title=f"{values['method']} on {Path(values['data']).name or values['data']}",
        facts=facts(values, results, metrics, timing),
        gain=headlines.gain(results),
        verdict=headlines.verdict(results),
        glance=glance(results, metrics, spectra, timing),
        state=state(values, results, metrics),
        is_run=results.get("of") != "encoder",
        measures=measures(results),
        table=accuracy_table(results.get("table") or [], tested(results)),
        sections={title: group for title, group in sections.items() if group},
        blob={chart["id"]: chart for group in [*sections.values(), alone] for chart in group},
        map=kept.get("map"),
        map_labelled=atlas is not None and any(label is not None for label in atlas["points"]["labels"]),
        larger_map=larger_map(folder, results, kept) if results.get("of") != "encoder" else None,
        neighbours=gallery.neighbour_rows(kept),
        views=gallery.view_groups(kept),
        sheets=Markup(gallery.style_of(gallery.sheets_of(kept))),
        speed=speed if speed["series"] else None,
        costs=costs(results, timing),
        configuration=configuration(config),
        command=repeating(results.get("command")),
        from_python=results.get("command", "") is None,
        versions=results.get("versions") or {},
        seed=values.get("seed"),
        trained_on=results.get("test_images_trained_on", 0),
        resume=how_to_resume(folder.path),
        notes=notes(results),
        load=results.get("load") or [],
    )


def notes(results: Record) -> list[str]:
    """Return notes on images that the run did not use."""
    skipped = results.get("skipped_images", 0)
    found = [f"{plural(skipped, 'image')} could not be read; skipped.txt lists them"] if skipped else []
    return [*([results["note"]] if results.get("note") else []), *found]


def larger_map(folder: RunFolder, results: Record, kept: Record) -> str | None:
    """Return the command that draws a map of more images, or None if the map shows all it can."""
    images = (results.get("train_images") or 0) + (results.get("test_images") or 0)
    most = min(images, MOST_POINTS)
    drawn = len(kept["map"]["x"]) if kept.get("map") else 0
    return f"twofold report {quote(str(folder.path))} --map {most}" if drawn < most else None


def page(template: str, *, package: str = REPORT, **words: Any) -> str:
    """Render a template. It and the template it extends are files of `package` or of this package."""
    style = "\n".join(resource(name) for name in STYLES)
    script = "\n".join(resource(f"scripts/{name}") for name in SCRIPTS)
    wrapped = f'(() => {{\n"use strict";\n{script}}})();\n'
    html = environment(package).get_template(template).render(style=style, script=wrapped, **words)
    return html.encode("ascii", "xmlcharrefreplace").decode("ascii")


def environment(package: str = REPORT) -> Environment:
    def template(name: str) -> str | None:
        found = (file for file in (files(package) / name, files(REPORT) / name) if file.is_file())
        return next((file.read_text(encoding="utf-8") for file in found), None)

    loader = FunctionLoader(template)
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return made


def resource(name: str) -> str:
    return (files(REPORT) / name).read_text(encoding="utf-8")


# ---------------------------------------------------------------------------------------------- words and numbers


def facts(values: Record, results: Record, metrics: Sequence[Record], timing: Sequence[Record]) -> list[str]:
    """Return epochs, images, device and time, as far as they are known."""
    words = []
    if values.get("epochs") is not None:
        epochs, done = plural(values["epochs"], "epoch"), last_of(metrics, "epoch") or 0
        words.append(epochs if finished(values, metrics) else f"{done:.3g} of {epochs}")
    if results.get("train_images") is not None:
        words.append(f"{results['train_images']:,} training images")
    if results.get("test_images"):
        words.append(f"{results['test_images']:,} test images")
    device = results.get("device") or values.get("device")
    if device and device != "auto":
        words.append(str(device))
    seconds = total_seconds(timing, results.get("seconds"))
    of = "of training" if results.get("seconds") is None else "of training and evaluation"
    of = "of evaluation" if results.get("of") == "encoder" else of
    return words + ([f"{duration(seconds)} {of}"] if seconds else [])


def finished(values: Record, metrics: Sequence[Record]) -> bool:
    return bool(metrics) and (last_of(metrics, "epoch") or 0) >= values.get("epochs", 0)


def state(values: Record, results: Record, metrics: Sequence[Record]) -> str:
    """Return why there are no accuracies: "unfinished", "unlabelled" or "unevaluated"; "" if there are some."""
    if results.get("table"):
        return ""
    if results.get("of") == "encoder":
        return "unlabelled"
    if not finished(values, metrics):
        return "unfinished"
    labelled = any("online_train_accuracy" in record for record in metrics)
    return "unevaluated" if labelled and not results else "unlabelled"


def total_seconds(timing: Sequence[Record], last: float | None) -> float:
    """Return the seconds of a run. Each time a run is resumed its clock restarts at 0; `last` are the last seconds."""
    seconds = [record["seconds"] for record in timing]
    earlier = sum(end for end, following in pairwise(seconds) if following < end)
    return earlier + (last if last is not None else seconds[-1] if seconds else 0.0)


def glance(
    results: Record, metrics: Sequence[Record], spectra: Sequence[Record], timing: Sequence[Record]
) -> list[dict[str, str]]:
    """Return the tiles at the top of the page: the main numbers, each with the baselines to compare it with."""
    rows = {row.get("name"): row for row in results.get("table") or []}
    trained = rows.get("trained", {})
    tiles = []
    for key, label in (("linear_accuracy", "linear accuracy"), ("knn_accuracy", "kNN accuracy")):
        if trained.get(key) is None:
            continue
        others = [row for name, row in rows.items() if name != "trained" and row.get(key) is not None]
        note = " · ".join(f"{row['name']} {per_cent(row[key]):.1f} %" for row in others)
        baselines = [row for row in others if is_baseline(row["name"])]
        unbeaten = shortfall(trained, baselines, key, tested(results))
        tiles.append(_tile(f"{per_cent(trained[key]):.1f}", label, note, unit="%", warning=unbeaten))
    rank = last_of(metrics, "features_effective_rank")
    features = last_of([record for record in spectra if record.get("of") == "features"], "eigenvalues")
    if rank is not None and features:
        note = f"of {len(features)} dimensions of the encoder's output, measured on augmented images"
        tiles.append(_tile(f"{rank:.3g}", "effective rank of features", note))
    used = (results.get("measures") or {}).get("effective_rank")
    if used is not None:
        note = f"of {len(features or [])} dimensions of the encoder's output, measured on the images"
        tiles.append(_tile(f"{used:.3g}", "effective rank of features", note))
    speed = typical_speed(timing)
    if speed is not None:
        note = str(results.get("device") or "")
        tiles.append(_tile(rough(speed), "training speed", note, unit="images/s"))
    return tiles


def _tile(value: str, label: str, note: str, *, unit: str = "", warning: str = "") -> dict[str, str]:
    return {"value": value, "unit": unit, "label": label, "note": note, "warning": warning}


def last_of(records: Sequence[Record], key: str) -> Any:
    """Return the newest recorded value of `key`, or None if there is none."""
    return next((record[key] for record in reversed(records) if record.get(key) is not None), None)


def rough(value: float) -> str:
    """Format a number with three significant digits and no decimals: 1,230,000."""
    return f"{float(f'{value:.3g}'):,.0f}"


def typical_speed(timing: Sequence[Record]) -> float | None:
    """Return the median speed over the second half of the records, when training has warmed up."""
    speeds = [record["images_per_second"] for record in timing if record.get("images_per_second")]
    return median(speeds[len(speeds) // 2 :]) if speeds else None


def measures(results: Record) -> dict[str, tuple[str, str]]:
    """Return the measures of an encoder's features by their names: the value, and what it means. A run has none."""
    words = {
        name.replace("_", " "): (
            "infinite" if value is None else f"{value:.4g}",
            (results.get("meanings") or {}).get(name, ""),
        )
        for name, value in (results.get("measures") or {}).items()
    }
    if results.get("duplicates") is not None:
        words["near-duplicates"] = (str(results["duplicates"]), "groups of images with nearly the same features")
    return words


def costs(results: Record, timing: Sequence[Record]) -> dict[str, str]:
    """Return time, speed, memory and device of the run."""
    words = {}
    training = max(charts.clock(timing).values(), default=0.0)
    if training:
        words["training"] = duration(training)
    total = total_seconds(timing, results.get("seconds"))
    if results.get("seconds") is not None:
        words["training and evaluation"] = duration(total)
    speed = typical_speed(timing)
    if speed is not None:
        words["images per second, median"] = rough(speed)
    if results.get("memory"):
        words["peak GPU memory"] = f"{results['memory']:,.0f} MiB"
    if results.get("process_memory"):
        words["peak process memory"] = f"{results['process_memory']:,.0f} MiB"
    if results.get("device"):
        words["device"] = str(results["device"])
    return words


def repeating(command: str | None) -> str | None:
    """Return the command without `--out`, because that folder already exists."""
    try:
        words = split(command or "")
    except ValueError:
        return command
    if "--out" not in words:
        return command
    at = words.index("--out")
    return join(words[:at] + words[at + 2 :])


def configuration(config: Record) -> list[dict[str, str]]:
    """Return a row for each key: name, value and origin. Values that the user set come first."""

    origin, values = config.get("origin", {}), config["values"]

    def is_used(key: str) -> bool:
        # Only named datasets are searched for in `data_dir`.
        return key != "data_dir" or origin.get(key) == "user" or values["data"] in NAMED_SETS

    rows = [(key, value, origin.get(key, "default")) for key, value in values.items() if is_used(key)]
    rows += [(key, value, "derived") for key, value in config.get("derived", {}).items()]
    rows.sort(key=lambda row: LAYERS.index(row[2]) if row[2] in LAYERS else 1)
    return [{"key": key, "value": shown(value), "origin": layer} for key, value, layer in rows]
