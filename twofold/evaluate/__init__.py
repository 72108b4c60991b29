"""Evaluation of representations: features, probes, metrics, verdicts, duplicates and maps. Nothing here trains."""
