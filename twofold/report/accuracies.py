"""Accuracies in per cent, and which differences between them are larger than what chance makes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from twofold.text import plural

Record = Mapping[str, Any]


def per_cent(value: float) -> float:
    return float(f"{100 * value:.1f}")


def tested(results: Record) -> int:
    """How many images accuracies are of: those with a label, which older runs did not count apart."""
    return results.get("test_labelled", results.get("test_images")) or 0


def deviation(row: Record, key: str, test_images: int) -> float:
    """Of few labels the one over choices of them; else that of counting hits among the test images. 0: not known."""
    if key == "few_labels_accuracy":
        return row.get("few_labels_sd") or 0.0
    if not test_images:
        return 0.0
    # One hit and one miss more, so that 100 % of a few images is not certain.
    count = test_images + 2
    share = (row[key] * test_images + 1) / count
    return math.sqrt(share * (1 - share) / count)


def clearly_above(row: Record, other: Record, key: str, test_images: int) -> bool:
    """Whether the difference, as printed, is above the deviations of both together."""
    both = math.hypot(*(deviation(each, key, test_images) for each in (row, other)))
    difference = per_cent(row[key]) - per_cent(other[key])
    return difference > 0 and difference > 100 * both


def shortfall(trained: Record, others: Sequence[Record], key: str, test_images: int) -> str:
    """With what the training did not pay, in words; "" where it did with all."""
    unbeaten = [row for row in others if not clearly_above(trained, row, key, test_images)]
    within = [row["name"] for row in unbeaten if per_cent(trained[key]) > per_cent(row[key])]
    below = [row["name"] for row in unbeaten if row["name"] not in within]
    words = {"not better than": below, "not clearly better than": within}
    return "; ".join(f"{comparison} {' and '.join(names)}" for comparison, names in words.items() if names)


def seed_spread(row: Record, key: str) -> str:
    sd = row.get("few_labels_sd") if key == "few_labels_accuracy" else None
    return "" if sd is None else f"± {per_cent(sd):.1f}"


def accuracy_table(rows: Sequence[Record], test_images: int = 0) -> dict[str, Any] | None:
    """Columns and rows of text in per cent; every cell knows whether it is clearly the best of its column."""
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
