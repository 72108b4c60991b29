"""What a representation is worth: features, probes, metrics, verdicts, duplicates and maps. It trains no encoder."""
