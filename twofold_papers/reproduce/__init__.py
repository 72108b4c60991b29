"""Reruns of the papers' tables: the configuration of each row, and its results next to the published numbers.

`tables/` and the folders of the papers have one module for each table. The tables are part of the package, so that an
installed `twofold reproduce` has them. The records of our runs are in `records/` of the repository.
"""
