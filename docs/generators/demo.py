"""The table in README that shows what `make demo` ends with."""

from statistics import mean

from generators import paths
from generators.markdown import table
from generators.records import percent, records, rows_of

START, END = "<!-- demo: written by docs/generate.py -->\n", "<!-- end of demo -->\n"


def demo() -> str:
    """Return the duration of the demo and its table, from the records of its runs."""
    digits = list(records("digits-frossl-seed*.json").values())
    seconds, machine = mean(run["results"]["seconds"] for run in digits), digits[0]["machine"]
    epochs = digits[0]["config"]["values"]["epochs"]
    columns = ("few_labels_accuracy", "linear_accuracy", "knn_accuracy")
    rows = []
    for name in ("trained", "untrained", "raw pixels"):
        found = rows_of(digits, name)
        if name == "raw pixels":  # They do not depend on the seed.
            found = found[:1]
        rows.append([name, *(percent([row[column] for row in found]) for column in columns)])
    lines = [
        f"After the installation, the demo takes about {seconds:.0f} seconds on {machine}. It trains FroSSL for",
        f"{epochs} epochs. Then it prints a table of accuracies and the paths of the encoder and the report. The table",
        f"below shows accuracies on held-out digits in per cent: mean ± standard deviation over {len(digits)} seeds.",
        "Raw pixels do not depend on the seed.",
        "",
        *table(["features", "linear, 10 labels per class", "linear, all labels", "kNN"], rows),
    ]
    return "\n".join(lines) + "\n"


def readme() -> str:
    """Return README with the demo between its two comments."""
    before, rest = paths.README.read_text(encoding="utf-8").split(START)
    return before + START + demo() + END + rest.split(END)[1]
