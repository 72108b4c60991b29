"""Checks and reruns of the five papers: the commands `twofold verify` and `twofold reproduce`.

Each paper has a folder with its claims, figures and tables. `verify/` computes claims and draws figures. `reproduce/`
carries out the runs of tables and shows their results next to the published numbers. This package imports twofold,
and twofold never imports this package.
"""
