"""The two headlines of a report: did training help, and did the embeddings collapse? Each has one of three tones.

A headline is "good" only if training helped, and "bad" only if it did not. "open" is everything else.
"""

from collections.abc import Mapping
from typing import Any

from twofold.report.accuracies import shortfall, tested

Record = Mapping[str, Any]

HEALTHY = ("healthy", "few dimensions", "common offset", "unknown")  # kinds of verdicts that are no failure
ANSWERS = {"helped": "yes", "did not help": "no", "cannot tell": "cannot tell", "not judged": "not judged"}


def gain(results: Record) -> dict[str, Any] | None:
    """Return the answer to the question whether training helped. Older runs have none."""
    given = results.get("gain")
    if not isinstance(given, dict) or not given.get("sentence"):
        return None
    tones = {"helped": "open" if given.get("surpassed_by") else "good", "did not help": "bad"}
    tone = tones.get(str(given.get("kind")), "open")
    kept = (results.get("kept") or {}).get("sentence")
    return _block(given) | {"tone": tone, "by": given.get("by"), "kept": kept, "of_embeddings": False}


def verdict(results: Record) -> dict[str, Any] | None:
    """Return the verdict on collapse."""
    given = results.get("verdict")
    if not isinstance(given, dict) or not given.get("sentence"):
        return None
    block = _block(given)
    words = " ".join([block["sentence"], *block["evidence"]])
    of_embeddings = "rank " in words or "singular values" in words
    return block | {
        "tone": verdict_tone(block["kind"], results),
        "by": None,
        "kept": None,
        "of_embeddings": of_embeddings,
    }


def verdict_tone(kind: str, results: Record) -> str:
    """Return the tone of a verdict, which also depends on whether training helped."""
    helps = helped(results)
    if kind in HEALTHY:
        return "good" if helps and kind == "healthy" else "open"
    return "open" if helps else "bad"


def helped(results: Record) -> bool:
    """Whether training helped. Of older runs, the accuracies are compared."""
    if results.get("gain"):
        return bool(results["gain"].get("kind") == "helped")
    rows = {row.get("name"): row for row in results.get("table") or []}
    start = rows.get("before training") or rows.get("untrained")
    if start is None or "trained" not in rows:
        return False
    return not shortfall(rows["trained"], [start], "linear_accuracy", tested(results))


def short_answer(results: Record) -> str:
    """Return the answer in a word or two; "" for older runs."""
    return ANSWERS.get(str((results.get("gain") or {}).get("kind")), "")


def _block(given: Record) -> dict[str, Any]:
    return {
        "kind": str(given.get("kind") or ""),
        "sentence": given["sentence"],
        "evidence": [str(item) for item in given.get("evidence") or []],
        "remedy": given.get("remedy"),
    }
