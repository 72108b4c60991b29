"""The folders that the generators read and write."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FIGURES = DOCS / "figures"
README = ROOT / "README.md"
RECORDS = ROOT / "records"
BENCHMARKS = ROOT / "benchmarks" / "results"
