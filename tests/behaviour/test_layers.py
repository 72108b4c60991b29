"""Imports go one way, in the order of docs/design.md: a module imports what stands before it, or its own folder."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
# From the lowest layer to the highest. Modules of the first lines have a rank each; folders of one line do not import
# each other.
LAYERS: list[tuple[str, ...]] = [
    *((name,) for name in ("version", "errors", "types", "keys", "text", "counter", "linalg", "lars", "randomness")),
    *((name,) for name in ("launch", "dist", "files", "display", "device", "precision")),
    ("config",),
    ("cuda",),
    ("data", "models", "objectives"),
    ("methods",),
    ("runs",),
    ("evaluate",),
    ("train",),
    ("theory",),
    ("report",),
    ("verbs",),
    ("__init__",),
    ("cli",),
    ("__main__",),
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def modules(package: str) -> dict[str, Path]:
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


LIBRARY, PAPERS = modules("twofold"), modules("twofold_papers")
EVERYTHING = LIBRARY | PAPERS


def imported(path: Path, *, late: bool = True) -> Iterator[str]:
    """The modules of ours that a file imports; `late`: also those in functions and for types alone."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree) if late else tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in EVERYTHING else node.module


def layer(module: str) -> str:
    """The part of the library that a module belongs to."""
    return module.split(".")[1] if "." in module else "__init__"


def test_every_part_has_a_place_in_the_order() -> None:
    assert {layer(module) for module in LIBRARY} == RANK.keys()


def test_imports_go_down() -> None:
    up = [
        f"{module} imports {other}"
        for module, path in LIBRARY.items()
        for other in imported(path)
        if other.split(".")[0] == "twofold" and RANK[layer(other)] > RANK[layer(module)]
        # The package itself only names what is below it, so that `twofold.pretrain` is found.
        if not (module == "twofold" and RANK[layer(other)] < RANK["cli"])
    ]
    assert up == []


def test_folders_of_one_rank_do_not_import_each_other() -> None:
    sideways = [
        f"{module} imports {other}"
        for module, path in LIBRARY.items()
        for other in imported(path)
        if other.split(".")[0] == "twofold"
        and RANK[layer(other)] == RANK[layer(module)]
        and layer(other) != layer(module)
    ]
    assert sideways == []


def test_modules_form_no_cycles() -> None:
    graph = {
        module: {other for other in imported(path, late=False) if other in EVERYTHING and other != module}
        for module, path in EVERYTHING.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_the_library_does_not_know_the_papers() -> None:
    assert [
        module for module, path in LIBRARY.items() if any("twofold_papers" in name for name in imported(path))
    ] == []


def test_only_dist_and_train_know_of_processes() -> None:
    knowing = {
        layer(module)
        for module, path in LIBRARY.items()
        if any(name.startswith("torch.distributed") for name in imported(path))
    }
    assert knowing <= {"dist", "train"}


def test_tests_mirror_the_tree() -> None:
    """tests/a/test_b.py or tests/a/test_b_topic.py is of twofold/a/b; what spans modules is in tests/behaviour."""
    packages = {"papers": "twofold_papers", "benchmarks": "benchmarks"}
    strangers = []
    for path in (ROOT / "tests").rglob("test_*.py"):
        folder, *rest = path.relative_to(ROOT / "tests").parts
        if folder == "behaviour":
            continue
        home = (
            ROOT.joinpath(packages[folder], *rest[:-1])
            if folder in packages
            else ROOT.joinpath("twofold", *path.relative_to(ROOT / "tests").parts[:-1])
        )
        words = path.stem.removeprefix("test_").split("_")
        names = {"_".join(words[:count]) for count in range(1, len(words) + 1)} | {f"__{words[0]}__"}
        if not any((home / name).is_dir() or (home / f"{name}.py").is_file() for name in names):
            strangers.append(str(path.relative_to(ROOT)))
    assert strangers == []
