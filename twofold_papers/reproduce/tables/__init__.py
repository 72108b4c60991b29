"""All tables: those of the papers, and the tables of this folder, which compare many methods."""

from twofold.errors import TwofoldError, nearest
from twofold_papers.alpha_cl import tables as alpha_cl
from twofold_papers.birth import tables as birth
from twofold_papers.frossl import tables as frossl
from twofold_papers.isoloss import tables as isoloss
from twofold_papers.reproduce.table import Table
from twofold_papers.reproduce.tables import catalog, catalog_longer, decay_all, long
from twofold_papers.s_diet import tables as s_diet

# In the order of `twofold reproduce --list`.
_ALL = (
    catalog.TABLE,
    catalog_longer.TABLE,
    decay_all.TABLE,
    *alpha_cl.TABLES,
    *s_diet.TABLES,
    *frossl.TABLES,
    *birth.TABLES,
    *isoloss.TABLES,
    long.TABLE,
)
TABLES: dict[str, Table] = {table.name: table for table in _ALL}


def find_table(name: str) -> Table:
    if name not in TABLES:
        raise TwofoldError(f"unknown table '{name}'{nearest(name, list(TABLES))}")
    return TABLES[name]
