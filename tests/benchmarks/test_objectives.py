"""The benchmark of objectives, on small sizes and without lightly."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

ROOT = Path(__file__).parent.parent.parent
CATALOG = ROOT / "twofold" / "methods" / "catalog"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.objectives")


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.measure")


def test_benchmark_runs_and_writes_its_results(benchmark: ModuleType, tmp_path: Path) -> None:
    out = tmp_path / "new" / "result.json"
    command = [
        "-m",
        "benchmarks.objectives",
        "--device",
        "cpu",
        "--sizes",
        "small",
        "--seconds",
        "0",
        "--out",
        str(out),
    ]
    printed = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    record = json.loads(out.read_text())
    assert record["torch"] == torch.__version__
    assert record["machine"].startswith("CPU")
    assert {"date", "commit", "lightly"} <= record.keys()
    found = {(row["objective"], row["N"], row["D"]) for row in record["rows"]}
    assert found == {
        (case.name, N, D)
        for case in benchmark.CASES
        for N, D in benchmark.SIZES["small"]
        if case.multiple is None or N % (case.multiple * D) == 0
    }
    assert "w_mse" in {name for name, _, _ in found}
    for row in record["rows"]:
        assert 0 < row["ours"]["forward_ms"] < row["ours"]["total_ms"]
        assert row["ours"]["lower_ms"] <= row["ours"]["total_ms"] <= row["ours"]["upper_ms"]
        assert row["objective"] in printed
        if row["check"] is not None:  # only if lightly is installed
            assert row["check"]["loss"] < 1e-10
            assert row["check"]["gradient"] < 1e-10


def test_every_objective_of_the_catalog_is_measured(benchmark: ModuleType) -> None:
    used = {name for file in CATALOG.glob("*.py") for name in re.findall(r"objectives\.(\w+)\(", file.read_text())}
    used -= {"importance", "family"}  # parts of alpha_cl and contrastive, which are measured instead
    assert len(used) > 10
    assert used <= {re.split(r"\W", case.name)[0] for case in benchmark.CASES}


def test_no_objective_allocates_a_tensor_of_samples_x_samples_x_dimensions(benchmark: ModuleType) -> None:
    for N, D in [(64, 512), (256, 128)]:
        z = benchmark.embeddings(N, D, "cpu")
        for case in benchmark.CASES:
            if case.multiple is None or N % (case.multiple * D) == 0:
                row = benchmark.row(case, z, 0.0, with_lightly=False)
                # CorInfoMax has D × D matrices in float64 for each view, which are larger if D is much larger than N.
                matrices = 8 * 2 * D * D * 8 if case.name == "corinfomax" else 0
                assert row["ours"]["peak_mib"] < max(N * N * D * 4, matrices) / 2**20, case.name


def test_memory_is_the_peak_and_not_the_sum(measuring: ModuleType) -> None:
    z = torch.ones(2**18, requires_grad=True)  # 1 MiB

    def four_tensors_two_at_a_time(z: Tensor) -> Tensor:
        for step in (1, 2):
            held = z.detach() + step, z.detach() - step
            del held
        return z.sum()  # its gradient is a single number, expanded

    assert measuring.peak_mib(four_tensors_two_at_a_time, z) == pytest.approx(2, abs=0.01)


def test_out_of_memory_is_recorded_as_a_result(measuring: ModuleType) -> None:
    def too_large(_: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    def broken(_: Tensor) -> Tensor:
        raise RuntimeError("a shape is wrong")

    z = torch.ones(3, requires_grad=True)
    steps = {"ours": lambda: too_large, "lightly": lambda: torch.sum}
    results = measuring.measure(steps, z, 0.0)
    assert results["ours"] == "out of memory"
    assert results["lightly"].repeats == measuring.FEWEST
    with pytest.raises(RuntimeError, match="shape"):
        measuring.measure({"ours": lambda: broken}, z, 0.0)


def test_slower_means_that_the_intervals_do_not_overlap(measuring: ModuleType) -> None:
    def around(lower: float, upper: float) -> object:
        return measuring.Measured(0.1, (lower + upper) / 2, lower, upper, 5, 0.0)

    assert measuring.is_slower(around(2.0, 3.0), around(1.0, 1.9))
    assert not measuring.is_slower(around(1.8, 3.0), around(1.0, 1.9))
    assert not measuring.is_slower(around(1.0, 1.9), around(2.0, 3.0))
