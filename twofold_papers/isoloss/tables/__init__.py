"""The tables, in the order of `twofold reproduce --list`."""

from twofold_papers.isoloss.tables import small, table_2, table_3, weight_decay, weight_decay_small

TABLES = (
    table_2.TABLE,
    table_3.TABLE,
    weight_decay.TABLE,
    weight_decay_small.TABLE,
    small.TABLE,
    small.ALIGNMENT,
)
