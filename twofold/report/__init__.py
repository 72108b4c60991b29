"""Self-contained HTML pages of runs, with their charts and pictures."""
