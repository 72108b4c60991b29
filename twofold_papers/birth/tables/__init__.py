"""In the order in which they are listed."""

from twofold_papers.birth.tables import graphs

TABLES = (graphs.TABLE,)
