"""The tables, in the order of `twofold reproduce --list`."""

from twofold_papers.alpha_cl.tables import small, table_1, table_2, table_3, table_4

TABLES = (
    table_1.TABLE,
    table_2.TABLE,
    table_3.TABLE,
    table_4.TABLE,
    small.TABLE,
)
