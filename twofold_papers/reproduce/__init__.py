"""The papers' tables, rerun: configurations beside published numbers, one file for each table in `tables/`.

Tables are part of the package, so that an installed `twofold reproduce` has them; the records of runs are results of
this project, and lie in the repository's `records`.
"""
