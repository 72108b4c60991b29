"""What checks and reruns the five papers: `twofold verify` and `twofold reproduce`.

Each paper has a folder with its claims, figures and tables. `verify/` computes claims and draws figures, `reproduce/`
carries out the runs of tables and sets their numbers next to the published ones. All of it imports twofold, never the
reverse.
"""
