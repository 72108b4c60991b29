"""The generated files that are committed, since they are made of records, benchmarks and checked claims."""

from pathlib import Path

from generators import benchmarks, coverage, demo, errata, paths, results
from twofold_papers.verify.claim import check, claims


def quick_files() -> dict[Path, str]:
    """Return the text of each file, except the errata."""
    return {
        paths.README: demo.readme(),
        paths.DOCS / "benchmarks.md": benchmarks.page(),
        paths.DOCS / "coverage.md": coverage.page(),
        **{paths.DOCS / path: text for path, text in results.pages().items()},
        **{paths.FIGURES / name: picture for name, picture in results.figures().items()},
    }


def errata_page() -> str:
    """Return docs/errata.md. This computes the claims whose published form is wrong, which takes seconds."""
    return errata.page([check(claim) for claim in claims() if claim.published_form])
