"""Write the generated files that are committed: results, benchmarks, errata, figures, and the demo in README.

Run `python docs/generate.py` after a change of records, benchmarks, tables or claims. Tests check that the files are up
to date. The pages in docs/reference/ are not committed: `make docs` writes them.
"""

from pathlib import Path

from generators import committed, paths, theory


def main() -> None:
    files = committed.quick_files()
    for path in paths.FIGURES.glob("*.svg"):
        if path not in files:
            path.unlink()
    for path, text in files.items():
        write(path, text)
    write(paths.DOCS / "errata.md", committed.errata_page())
    theory.draw_pictures()


def write(path: Path, text: str) -> None:
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(paths.ROOT)}")


if __name__ == "__main__":
    main()
