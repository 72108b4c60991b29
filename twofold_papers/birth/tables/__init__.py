"""The tables, in the order of `twofold reproduce --list`."""

from twofold_papers.birth.tables import graphs, small

TABLES = (graphs.TABLE, small.LABELS, small.DIGITS, small.IMBALANCE)
