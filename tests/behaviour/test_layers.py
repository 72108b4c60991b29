"""Imports follow the layers in docs/design.md: a module imports lower layers and its own folder only."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
# From the lowest layer to the highest. Each name of the first three lines is a layer of its own. Folders in the same
# layer do not import each other.
LAYERS: list[tuple[str, ...]] = [
    *((name,) for name in ("version", "errors", "types", "keys", "text", "counter", "linalg", "lars", "randomness")),
    *(
        (name,)
        for name in ("launch", "dist", "files", "checksums", "schema", "array_files", "console", "display", "device")
    ),
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
    """The modules of this repository that a file imports. `late`: also imports in functions and for types alone."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree) if late else tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in EVERYTHING else node.module


def layer(module: str) -> str:
    """The top-level module or folder of `twofold` that a module belongs to."""
    return module.split(".")[1] if "." in module else "__init__"


def test_every_module_belongs_to_a_layer() -> None:
    assert {layer(module) for module in LIBRARY} == RANK.keys()


def test_modules_import_no_higher_layer() -> None:
    upward_imports = [
        f"{module} imports {other}"
        for module, path in LIBRARY.items()
        for other in imported(path)
        if other.split(".")[0] == "twofold" and RANK[layer(other)] > RANK[layer(module)]
        # The package itself may import what is below the CLI, so that `twofold.pretrain` exists.
        if not (module == "twofold" and RANK[layer(other)] < RANK["cli"])
    ]
    assert upward_imports == []


def test_folders_of_the_same_layer_do_not_import_each_other() -> None:
    sideways_imports = [
        f"{module} imports {other}"
        for module, path in LIBRARY.items()
        for other in imported(path)
        if other.split(".")[0] == "twofold"
        and RANK[layer(other)] == RANK[layer(module)]
        and layer(other) != layer(module)
    ]
    assert sideways_imports == []


def test_imports_have_no_cycles() -> None:
    graph = {
        module: {other for other in imported(path, late=False) if other in EVERYTHING and other != module}
        for module, path in EVERYTHING.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_twofold_does_not_import_twofold_papers() -> None:
    assert [
        module for module, path in LIBRARY.items() if any("twofold_papers" in name for name in imported(path))
    ] == []


def test_only_dist_and_train_import_torch_distributed() -> None:
    importing = {
        layer(module)
        for module, path in LIBRARY.items()
        if any(name.startswith("torch.distributed") for name in imported(path))
    }
    assert importing <= {"dist", "train"}


def test_test_files_mirror_the_package() -> None:
    """tests/a/test_b.py and tests/a/test_b_topic.py test twofold/a/b. Tests of several modules are in
    tests/behaviour."""
    packages = {"papers": "twofold_papers", "benchmarks": "benchmarks"}
    misplaced = []
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
            misplaced.append(str(path.relative_to(ROOT)))
    assert misplaced == []
