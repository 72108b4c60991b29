"""Tables of accuracies in per cent, and which differences are larger than chance explains."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from twofold.text import plural

Record = Mapping[str, Any]


def per_cent(value: float) -> float:
    return float(f"{100 * value:.1f}")


def tested(results: Record) -> int:
    """Return the number of labelled test images. Older runs recorded only the number of all test images."""
    return results.get("test_labelled", results.get("test_images")) or 0


def deviation(row: Record, key: str, test_images: int) -> float:
    """Return the standard deviation of an accuracy, or 0 if it is unknown.

    With few labels it is measured over random choices of them. Otherwise it is that of a binomial count of correct
    answers on the test images.
    """
    if key == "few_labels_accuracy":
        return row.get("few_labels_sd") or 0.0
    if not test_images:
        return 0.0
    # Count one more hit and one more miss, so that 100 % on a few images has a deviation above 0.
    count = test_images + 2
    share = (row[key] * test_images + 1) / count
    return math.sqrt(share * (1 - share) / count)


def clearly_above(row: Record, other: Record, key: str, test_images: int) -> bool:
    """Return whether the displayed difference exceeds the two standard deviations combined."""
    both = math.hypot(*(deviation(each, key, test_images) for each in (row, other)))
    difference = per_cent(row[key]) - per_cent(other[key])
    return difference > 0 and difference > 100 * both


def is_baseline(name: str) -> bool:
    """Whether a row of the table is compared with the trained encoder, and not itself a result of the training."""
    return name not in ("trained", "with adapter") and not name.startswith("kept, step")


def shortfall(trained: Record, others: Sequence[Record], key: str, test_images: int) -> str:
    """Return which baselines the trained encoder does not beat, in words; "" if it beats all of them."""
    unbeaten = [row for row in others if not clearly_above(trained, row, key, test_images)]
    within = [row["name"] for row in unbeaten if per_cent(trained[key]) > per_cent(row[key])]
    below = [row["name"] for row in unbeaten if row["name"] not in within]
    words = {"not better than": below, "not clearly better than": within}
    return ", ".join(f"{comparison} {' and '.join(names)}" for comparison, names in words.items() if names)


def seed_spread(row: Record, key: str) -> str:
    sd = row.get("few_labels_sd") if key == "few_labels_accuracy" else None
    return "" if sd is None else f"± {per_cent(sd):.1f}"


def accuracy_table(rows: Sequence[Record], test_images: int = 0) -> dict[str, Any] | None:
    """Return columns and rows of text in per cent. Each cell states whether it is clearly the best of its column."""
    if not rows:
        return None
    labels = next((row["labels_per_class"] for row in rows if row.get("labels_per_class")), None)
    few = "linear, few labels" if labels is None else f"linear, {plural(labels, 'label')} per class"
    titles = {"linear_accuracy": "linear", "few_labels_accuracy": few, "knn_accuracy": "kNN"}
    keys = [key for key in titles if any(row.get(key) is not None for row in rows)]
    return {
        "columns": [titles[key] for key in keys],
        "test_images": test_images,
        "rows": [
            {"name": row.get("name", "?"), "cells": [_cell(row, key, rows, test_images) for key in keys]}
            for row in rows
        ],
    }


def _cell(row: Record, key: str, rows: Sequence[Record], test_images: int) -> dict[str, Any]:
    if row.get(key) is None:
        return {"text": "–", "spread": "", "best": False}
    others = [other for other in rows if other is not row and other.get(key) is not None]
    best = bool(others) and all(clearly_above(row, other, key, test_images) for other in others)
    return {"text": f"{per_cent(row[key]):.1f}", "spread": seed_spread(row, key), "best": best}
