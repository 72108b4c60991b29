"""The tables, in the order of `twofold reproduce --list`."""

from twofold_papers.birth.tables import graphs

TABLES = (graphs.TABLE,)
