"""The methods: one page for each, from the catalog."""

from collections.abc import Mapping
from typing import Any

from generators.configuration import key_table, target_of
from generators.markdown import block, code, table, toctree
from generators.mathematics import with_mathematics
from twofold.config import RUN_KEYS, resolve
from twofold.keys import parameter_keys, shown
from twofold.methods import CATALOG, Entry, schema
from twofold.verbs.choose import FEW_IMAGES

FAMILIES = {
    "contrastive": "The views of one image attract each other, and views of different images repel each other.",
    "covariance": "The dimensions of the embedding are decorrelated, so that all of them carry information.",
    "predictive": "A predictor maps one view to the other. The asymmetry between the two views prevents collapse.",
    "relational": "A graph states which images belong together: views, labels, groups or neighbours.",
    "assignment": "Images are assigned to classes: one class for each image, prototypes, or labels.",
}


def pages() -> dict[str, str]:
    """Return the text of each page, by its path below docs/reference/."""
    found = {f"methods/{name}.md": page(entry) for name, entry in sorted(CATALOG.items())}
    return {"methods/_families.md": families(), **found}


def families() -> str:
    """Return the tables of docs/methods.md, which includes them."""
    lines = []
    for family, text in FAMILIES.items():
        rows = [
            [f"[`{name}`](/reference/methods/{name}.md)", entry.summary, entry.choose, entry.paper]
            for name, entry in sorted(CATALOG.items())
            if entry.family == family
        ]
        titles = ["method", "what it does", "when to use it", "paper"]
        lines += [f"## {family.capitalize()}", "", text, "", *table(titles, rows), ""]
    lines += toctree(f"/reference/methods/{name}" for name in sorted(CATALOG))
    return "\n".join(lines) + "\n"


def page(entry: Entry) -> str:
    parameters = resolve(schema(entry.name), {}).parameters
    recipe = entry.recipe_for(parameters)
    lines = [f"# {entry.name}", "", *facts(entry), ""]
    lines += block([f"twofold pretrain photos/ --method {entry.name}"])
    lines += ["", "## Objective", "", *formula(entry), ""]
    lines += ["## Keys of this method", "", *key_table(parameter_keys(entry.build).values(), with_targets=False), ""]
    lines += ["## Recipe", "", "The method sets these defaults of other [keys](../configuration.md):", ""]
    lines += [*table(["key", "default"], settings(recipe)), ""]
    for case, values in cases(entry, parameters).items():
        lines += [f"{case}:", "", *table(["key", "default"], settings(values)), ""]
    return "\n".join(lines)


def facts(entry: Entry) -> list[str]:
    texts = {
        "What it does": entry.summary,
        "When to use it": entry.choose,
        "Paper": entry.paper,
        "Source of the defaults": entry.source,
        "State in addition to the weights": entry.state,
        "Memory of the objective in a step": entry.memory,
    }
    # Links in these texts are relative to docs/.
    return [f"- **{title}**: {text.replace('](', '](/')}" for title, text in texts.items()]


def formula(entry: Entry) -> list[str]:
    """Return the formula as mathematics, with the meaning of its symbols, or as text if there is no LaTeX."""
    latex: str = getattr(entry, "latex", "")
    symbols: str = getattr(entry, "symbols", "")
    if not latex:
        return block([entry.formula])
    return ["$$", latex, "$$", "", with_mathematics(symbols)]


def settings(values: Mapping[str, Any]) -> list[list[str]]:
    return [[key_link(name), code(shown(value))] for name, value in values.items()]


def key_link(name: str) -> str:
    """Return a link to a key of all runs, or the name of a key of the method."""
    return f"[`{name}`](../configuration.md#{target_of(name)})" if name in RUN_KEYS else code(name)


def cases(entry: Entry, parameters: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return what a method sets for few images, small batches, and without the teacher that it has by default."""
    found: dict[str, Mapping[str, Any]] = {
        f"With fewer than {FEW_IMAGES} images": entry.few_images,
        "With a batch size of 64": entry.by_batch(64),
    }
    if parameters.get("teacher_momentum") is not None and callable(entry.recipe):
        usual, alone = entry.recipe_for(parameters), entry.recipe_for({**parameters, "teacher_momentum": None})
        found["With `teacher_momentum=none`"] = {
            key: value for key, value in alone.items() if usual.get(key, parameters.get(key)) != value
        }
    return {case: values for case, values in found.items() if values}
