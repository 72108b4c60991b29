"""The tables of S-DIET, in the order in which they are listed."""

from twofold_papers.s_diet.tables import (
    figure_1c,
    figure_2,
    minutes,
    small,
    table_1,
    table_2,
    table_3,
    table_4,
    table_5,
    table_6,
)

TABLES = (
    table_1.TABLE,
    figure_1c.TABLE,
    table_2.TABLE,
    table_3.TABLE,
    table_4.TABLE,
    table_5.TABLE,
    table_6.TABLE,
    figure_2.TABLE,
    minutes.TABLE,
    small.TABLE,
    small.UPDATES,
)
