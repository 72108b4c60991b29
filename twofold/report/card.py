"""The model card of an encoder: `README.md` with the front matter that model hubs read, in Markdown.

The card is for people who do not have the run, and for the public. So it names images, files and folders of the machine
only by the last part of their paths. Names are text of somebody else: they are written as code, in which Markdown and
HTML mean nothing, and all other words are escaped.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from twofold.data.registry import NAMED_SETS
from twofold.data.source import ARRAY, DATASET
from twofold.keys import shown
from twofold.methods import CATALOG
from twofold.report import headlines
from twofold.report.accuracies import accuracy_table, tested
from twofold.report.page import environment, notes, total_seconds
from twofold.text import duration, plural, printable

Record = Mapping[str, Any]

THIS = "this encoder"  # the name of its row in the table
MOST_CLASSES = 20  # that the card names
SETTINGS = ("encoder", "init", "recipe", "image_size", "epochs", "batch_size", "optimizer", "lr", "weight_decay")
NOT_SHARED = {"method", "data", "data_dir", "class_list", "device", "download", "log", "map_points", "head.path"}
MARKDOWN = re.compile(r"([\\`*_\[\]<>|~$])")  # characters with a meaning, which a backslash removes
LINK = re.compile(r"(?i)(://|www\.)")  # what hubs turn into links
COLOURS = {1: "a grey", 3: "an RGB"}


class Markdown(str):
    """Text that is written as it is. All other text of a card is escaped."""


def code(name: object) -> Markdown:
    """Return a name as code, in one line. Nothing in it can end the code or be read as Markdown or HTML."""
    text = printable(" ".join(str(name).split())) or " "
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    edge = " " if text[0] in "` " or text[-1] in "` " else ""
    return Markdown(f"{fence}{edge}{text}{edge}{fence}")


def cell(name: object) -> Markdown:
    """Return a name as code inside a table, where a bar would end the cell."""
    return Markdown(code(name).replace("|", "\\|"))


def escaped(value: object) -> str:
    """Return text that Markdown shows as it is, in one line."""
    if isinstance(value, Markdown):
        return value
    text = MARKDOWN.sub(r"\\\1", printable(" ".join(str(value).split()))).replace("&", "&amp;")
    return LINK.sub(lambda found: found[0][:-1] + "\\" + found[0][-1], text)


def number(given: Record) -> Markdown:
    """Return a cell of the table of accuracies."""
    text = f"**{given['text']}**" if given["best"] else given["text"]
    return Markdown(f"{text} {given['spread']}".strip())


def last_part(value: Any) -> Any:
    """Return a path without the folders that it is in. They may tell more than their owner wants to publish."""
    text = str(value)
    return PurePath(text).name if isinstance(value, str) and ("/" in text or "\\" in text) else value


def name_of_data(location: str) -> str:
    """Return a name of a dataset, or the last part of a path; an empty text for objects of a program."""
    return "" if location in (ARRAY, DATASET) else str(location if location in NAMED_SETS else last_part(location))


def render_card(
    name: str,
    facts: Record,
    *,
    lines: Sequence[str],
    features: int,
    parameters: int,
    source: str,
    adapter: str | None,
    config: Record,
    results: Record,
    timing: Sequence[Record],
    pictures: Record,
) -> str:
    """Return the text of a card.

    Parameters
    ----------
    name
        The name of the folder, and so of the model.
    facts
        The content of the JSON file next to the weights.
    lines
        The lines of Python that load the encoder.
    features
        The dimension of the features, after the adapter.
    parameters
        The number of weights.
    source
        What the user named: a run, a name or a file.
    adapter
        How the adapter was made, in words, or None.
    config, results, timing, pictures
        The records of the run, or of a measurement of another encoder; empty if there are none.
    """
    is_run = bool(config) and results.get("of") != "encoder"
    values = config.get("values") or {}
    channels, size = facts["input"]["shape"][-3], facts["input"]["shape"][-1]
    table = accuracy_table(rows_of(results, adapter is not None), tested(results))
    made = environment().overlay(autoescape=False, finalize=escaped)
    made.filters |= {"code": code, "cell": cell, "number": number}
    text = made.get_template("card.md").render(
        front=Markdown(front_matter(name, facts, values, table)),
        name=name,
        encoder=facts["encoder"],
        parameters=parameters,
        kind=COLOURS.get(channels, f"a {channels}-channel"),
        size=size,
        features=features,
        training=training(values, config.get("origin") or {}, results, timing) if is_run else None,
        is_adapted_folder=not source,
        source=last_part(source),
        adapter=adapter,
        lines=Markdown("\n".join(lines)),
        version=facts["twofold"],
        own_class=facts["encoder"] if "encoder=" in "".join(lines) else None,
        libraries=[(name, Markdown("\n".join(code))) for name, code in facts["load"].items() if name != "twofold"],
        adapter_lines=Markdown("\n".join(facts["adapter"])) if isinstance(facts["adapter"], list) else None,
        data=data(values, results, pictures) if values.get("data") else None,
        gain=headlines.gain(results),
        verdict=headlines.verdict(results),
        table=table,
        held_out=f"{tested(results):,}",
        trained_on=results.get("test_images_trained_on", 0),
        map=map_facts(pictures),
    )
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


def rows_of(results: Record, has_adapter: bool) -> list[Record]:
    """Return the rows of the table of accuracies. The row of the features of this folder is the first."""
    rows = {row.get("name"): row for row in results.get("table") or []}
    adapted = rows.pop("with adapter", None)
    if "trained" in rows:
        own = rows.pop("trained")
        if adapted is not None and has_adapter:
            rows = {"without adapter": own} | rows
            own = adapted
        rows = {THIS: own} | rows
    return [{**row, "name": name} for name, row in rows.items()]


def front_matter(name: str, facts: Record, values: Record, table: Record | None) -> str:
    """Return the YAML that model hubs read. Its texts are JSON, which is YAML too."""
    tags = ["twofold", "image-feature-extraction", facts["encoder"]]
    tags += ["self-supervised-learning", facts["method"]] if facts["method"] else []
    lines = [
        "# license: add the identifier of your license, such as apache-2.0",
        "library_name: twofold",
        "pipeline_tag: image-feature-extraction",
        "tags:",
        *(f"- {_yaml(tag)}" for tag in tags),
    ]
    own = [row for row in (table or {}).get("rows", []) if row["name"] == THIS]
    data = name_of_data(values.get("data", "")) or "images"
    if table and own:
        lines += ["model-index:", f"- name: {_yaml(name)}", "  results:", "  - task:"]
        lines += ["      type: image-feature-extraction", "    dataset:"]
        lines += [f"      name: {_yaml(data)}", f"      type: {_yaml(data)}", "    metrics:"]
        for title, each in zip(table["columns"], own[0]["cells"], strict=True):
            lines += [
                "    - type: accuracy",
                f"      name: {_yaml(f'accuracy, {title}')}",
                f"      value: {each['text']}",
            ]
    return "\n".join(lines)


def _yaml(text: object) -> str:
    return json.dumps(printable(str(text)), ensure_ascii=False)


def training(values: Record, origin: Record, results: Record, timing: Sequence[Record]) -> dict[str, Any]:
    """Return how a run trained the encoder: the method, the settings, and the time."""
    method, on = str(values["method"]), name_of_data(str(values["data"]))
    entry = CATALOG.get(method)
    asked = [key for key, layer in origin.items() if layer == "user" and key not in SETTINGS]
    keys = [key for key in [*SETTINGS, *sorted({*asked, "seed"})] if key in values and key not in NOT_SHARED]
    about = [f"{method}: {entry.summary}" if entry else f"{method} is a method of its author's own."]
    if entry and entry.paper:
        about.append(f"Paper: {entry.paper}.")
    seconds = total_seconds(timing, results.get("seconds"))
    if seconds:
        on_device = f" on {results['device']}" if results.get("device") else ""
        about.append(f"Training and evaluation took {duration(seconds)}{on_device}.")
    return {
        "method": method,
        "with": Markdown(
            f"for {plural(values['epochs'], 'epoch')}{f' on {code(on)}' if on else ''} {knowledge(method, values)}"
        ),
        "about": " ".join(about),
        "settings": [(key, shown(_shareable(key, values[key]))) for key in keys if values[key] is not None],
    }


def knowledge(method: str, values: Record) -> Markdown:
    """Return in words what a run knew about the images in addition to their pixels."""
    graph = values.get("graph.source", "views")
    if method == "supervised" or graph == "labels":
        return Markdown("with labels")
    if graph == "teacher":
        return Markdown(f"without labels, to predict the features of {code(last_part(values.get('graph.encoder')))}")
    return Markdown("without labels" if graph == "views" else f"with the graph {code(last_part(graph))}")


def _shareable(key: str, value: Any) -> Any:
    """Return the value of a key without folders, and without the fingerprint of initial weights."""
    return last_part(value.partition("@")[0] if key == "init" else value) if isinstance(value, str) else value


def data(values: Record, results: Record, pictures: Record) -> dict[str, Any]:
    """Return what is known about the images: their name, their number, and their classes."""
    name = name_of_data(str(values["data"]))
    verb = "was measured on" if results.get("of") == "encoder" else "was trained on"
    counts = [plural(results[key], f"{word} image") for key, word in COUNTS.items() if results.get(key)]
    sentence = f"The encoder {verb} {code(name) if name else 'images'}"
    sentence += f": {' and '.join(counts)}." if counts else "."
    classes = pictures.get("classes") or []
    return {
        "sentence": Markdown(sentence),
        "classes": classes[:MOST_CLASSES],
        "count": len(classes),
        "more": max(len(classes) - MOST_CLASSES, 0),
        "notes": notes(results),
    }


COUNTS = {"train_images": "training", "test_images": "held-out"}


def map_facts(pictures: Record) -> dict[str, Any] | None:
    """Return the number of points of the map and whether they have classes, or None if there is no map."""
    kept = pictures.get("map")
    if not kept:
        return None
    return {"points": len(kept["x"]), "classes": any(label is not None for label in kept["labels"])}
