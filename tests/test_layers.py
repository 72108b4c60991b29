"""Imports go one way, in the order of docs/design.md: a module imports what stands before it, and its own layer."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "twofold"
FOUNDATION = ("errors", "types", "counter", "linalg", "keys", "config", "dist")
ORDER = [FOUNDATION, ("data", "models", "objectives"), ("methods", "theory"), ("evaluate",), ("train",), ("report",)]
TOP = ("plan", "api", "use", "estimator", "cli", "__init__", "__main__")
RANK = {name: rank for rank, names in enumerate([*ORDER, TOP]) for name in names}
MODULES = sorted(PACKAGE.rglob("*.py"))


def layer(module: Path) -> str:
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(module: Path) -> set[str]:
    """Full names of all that a module imports, wherever in the file."""
    names = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down(module: Path) -> None:
    own = layer(module)
    assert own in RANK, f"twofold/{own} has no place in the order of layers"
    for name in imported(module):
        parts = name.split(".")
        if parts[0] != "twofold" or len(parts) == 1 or parts[1] not in RANK:
            continue
        other = parts[1]
        sideways = {own, other} <= {"data", "models", "objectives"} and own != other
        assert RANK[other] <= RANK[own], f"{own} imports {other}, which stands above it"
        assert not sideways, f"{own} imports {other}: these never import each other"


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_dist_and_train_know_of_processes(module: Path) -> None:
    if layer(module) in ("dist", "train"):
        return
    assert not any(name.startswith("torch.distributed") for name in imported(module))


def test_every_layer_is_checked() -> None:
    assert {layer(module) for module in MODULES} >= {"data", "models", "objectives", "methods", "evaluate", "train"}
