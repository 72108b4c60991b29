"""The run folder: what a run writes, and the functions that read it again."""
