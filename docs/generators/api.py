"""The Python API: one page for each module that users import, with every public name."""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module

from generators.markdown import block, table, toctree


@dataclass(frozen=True)
class Page:
    """A page of the API: a module, what it is for, and the names to show, by topic.

    A topic's names may be paths below the module, such as `metrics.effective_rank`.
    """

    module: str
    purpose: str
    topics: Mapping[str, tuple[str, ...]]

    @property
    def names(self) -> list[str]:
        return [name for names in self.topics.values() for name in names]


def by_module(package: str, titles: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the names in `__all__` of a package by the module that defines them, which `titles` names."""
    found: dict[str, list[str]] = {title: [] for title in titles.values()}
    exported = import_module(package)
    for name in exported.__all__:
        home = getattr(exported, name).__module__ if callable(getattr(exported, name)) else ""
        here = (title for module, title in titles.items() if home.startswith(f"{package}.{module}"))
        found.setdefault(next(here, "Other names"), []).append(name)
    return {title: tuple(names) for title, names in found.items() if names}


PAGES = (
    Page(
        "twofold",
        "Train, use and evaluate encoders. Each function does the same as the command with its name.",
        {
            "Train": ("pretrain", "resume", "Run", "Config"),
            "Use": ("load_encoder", "adapt", "embed", "search", "predict", "export"),
            "Evaluate": ("probe", "knn", "diagnose"),
            "scikit-learn": ("Twofold",),
            "Errors": ("TwofoldError",),
        },
    ),
    Page(
        "twofold.methods",
        "The catalog of methods, and what you need to add a method. `twofold.methods()` returns all names, and "
        "`twofold.methods.CATALOG` maps each name to its `Entry`.",
        {
            "Add a method": ("entry", "Method", "Parts", "OfMoments"),
            "Read the catalog": ("Entry", "find", "schema"),
        },
    ),
    Page(
        "twofold.objectives",
        "Objectives: losses as pure functions of embeddings. Use them in your own training loop, or in a new method.",
        by_module(
            "twofold.objectives",
            {
                "contrastive": "Contrastive",
                "importance": "Weights of negative pairs",
                "covariance": "Covariance",
                "predictive": "Predictive",
                "relational": "Relational",
                "graphs": "Graphs of related images",
                "assignment": "Assignment",
                "moments": "Moments",
            },
        ),
    ),
    Page(
        "twofold.models",
        "The networks and the state that methods use.",
        {
            "Encoders": ("build_encoder", "feature_dimension"),
            "Projectors and predictors": ("mlp", "DirectPredictor", "Prototypes"),
            "Memory": ("Teacher", "Queue", "Centre", "RunningCovariance"),
            "Per-image classifier": (
                "SampleHead",
                "BatchRows",
                "LazyAdamW",
                "LazySGD",
                "multistep_adamw",
                "multistep_sgd",
            ),
        },
    ),
    Page(
        "twofold.data",
        "Data sources: find images, decode them, and make augmented views.",
        {
            "Open images": ("open.open_source", "source.Source", "source.ReadOptions"),
            "Transforms of your own": ("own_transform.Draw",),
            "Decode images": ("load.read_data", "source.Data", "source.Skipped", "store.ImageStore"),
            "Augment images": ("augment.Augmenter", "augment.EvalTransform"),
            "Add a source": ("registry.NamedSet", "registry.Reader"),
        },
    ),
    Page(
        "twofold.evaluate",
        "Measure how good a representation is, with and without labels.",
        {
            "Encoders": ("encoder.Encoder", "encoder.open_encoder"),
            "Spectrum": (
                "spectrum.measure_spectrum",
                *(f"metrics.{name}" for name in ("eigenvalues", "effective_rank", "stable_rank", "condition_number")),
                *(f"metrics.{name}" for name in ("shannon_entropy", "dimensions_above", "alignment", "uniformity")),
            ),
            "Labels": (
                "probes.linear_accuracy",
                "probes.few_label_accuracy",
                "probes.knn_accuracy",
                "linear.fit_linear",
                "linear.LinearProbe",
            ),
            "Collapse": ("verdict.judge", "verdict.Verdict", "verdict.Snapshot"),
            "Duplicates and maps": ("duplicates.near_duplicates", "projection.project", "projection.Projection"),
        },
    ),
    Page(
        "twofold.theory",
        "Simulate small networks, and watch what an objective does to the eigenvalues of the embeddings.",
        {"Simulation": ("simulate", "Trajectory")},
    ),
    Page(
        "twofold.types",
        "Data classes that pass between the parts of a method.",
        {"Records": ("Embeddings", "LossTerms", "Batch")},
    ),
    Page(
        "twofold.keys",
        "Types with bounds, for the parameters of your own method.",
        {
            "Numbers": ("Count", "Positive", "NonNegative", "Probability", "Momentum", "Bounds"),
            "Lists": ("Widths", "PerView"),
        },
    ),
)
# Names that `__all__` has, and that need no entry: the version, and modules with a page of their own.
WITHOUT_ENTRY = {
    "twofold": {"__version__", "methods"},
    "twofold.methods": {
        "CATALOG",
        "name_of_method",
        "relations",
        "refuse_keys_of_others",
        "refuse_unregistered",
        "schema_of_run",
    },
}

# Signature and options of names for which the usual ones would be too long: a key of a run is a field of Config.
NOTATION = {
    "twofold.Config": ("(**keys)", ["   :members: scaled_lr"]),
    "twofold.Twofold": (
        "(method='frossl', epochs=100, image_shape=None, overrides=None, *, random_state=0, out=None, verbose=False, "
        "**keys)",
        ["   :members:", "   :undoc-members:"],
    ),
}

INTRODUCTION = """# Python API

`twofold.__version__` is the version. Functions that take a path accept text and `pathlib.Path`.
"""


def pages() -> dict[str, str]:
    """Return the text of each page, by its path below docs/reference/."""
    rows = [[f"[`{page.module}`](api/{page.module}.md)", page.purpose] for page in PAGES]
    lines = [INTRODUCTION, *table(["module", "contents"], rows), ""]
    lines += toctree(f"api/{page.module}" for page in PAGES)
    return {"api.md": "\n".join(lines) + "\n", **{f"api/{page.module}.md": text_of(page) for page in PAGES}}


def text_of(page: Page) -> str:
    lines = [f"# {page.module}", "", page.purpose, ""]
    for topic, names in page.topics.items():
        lines += [f"## {topic}", "", *block(directives(page.module, names), "{eval-rst}"), ""]
    return "\n".join(lines)


def directives(module: str, names: Iterable[str]) -> list[str]:
    lines = []
    for name in names:
        signature, options = NOTATION.get(f"{module}.{name}") or ("", options_for(look_up(module, name)))
        lines += [f".. {directive_for(look_up(module, name))}:: {module}.{name}{signature}", *options, ""]
    return lines


def directive_for(value: object) -> str:
    if inspect.isclass(value):
        return "autoexception" if issubclass(value, BaseException) else "autoclass"
    return "autofunction" if inspect.isfunction(value) else "autodata"


def options_for(value: object) -> list[str]:
    if inspect.isfunction(value) or (inspect.isclass(value) and issubclass(value, BaseException)):
        return []
    if not inspect.isclass(value):
        return ["   :no-value:"]
    # The docstring describes the fields, or docs/_ext/docstrings.py adds their descriptions.
    fields = inspect.get_annotations(value)
    return ["   :members:", "   :undoc-members:", *([f"   :exclude-members: {', '.join(fields)}"] if fields else [])]


def look_up(module: str, name: str) -> object:
    path = f"{module}.{name}".split(".")
    for cut in range(len(path) - 1, 0, -1):
        try:
            value: object = import_module(".".join(path[:cut]))
        except ModuleNotFoundError:
            continue
        for part in path[cut:]:
            value = getattr(value, part)
        return value
    raise AttributeError(f"there is no {module}.{name}")
