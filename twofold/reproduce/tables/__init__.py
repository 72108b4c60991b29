"""The tables, one in each file, in the order in which they are listed and printed."""

from twofold.errors import TwofoldError, nearest
from twofold.reproduce.table import Table
from twofold.reproduce.tables import (
    alpha_cl_1,
    alpha_cl_2,
    alpha_cl_3,
    alpha_cl_4,
    birth_graphs,
    catalog,
    catalog_longer,
    frossl_appendix_c,
    frossl_online,
    frossl_spectrum,
    isoloss_2,
    isoloss_3,
    isoloss_weight_decay,
    isoloss_weight_decay_small,
    long,
    s_diet_1,
    s_diet_1c,
    s_diet_2,
    s_diet_3,
    s_diet_4,
    s_diet_5,
    s_diet_6,
    s_diet_figure_2,
    s_diet_minutes,
)

MODULES = (
    catalog,
    catalog_longer,
    alpha_cl_1,
    alpha_cl_2,
    alpha_cl_3,
    alpha_cl_4,
    s_diet_1,
    s_diet_1c,
    s_diet_2,
    s_diet_3,
    s_diet_4,
    s_diet_5,
    s_diet_6,
    s_diet_figure_2,
    s_diet_minutes,
    frossl_online,
    frossl_spectrum,
    frossl_appendix_c,
    birth_graphs,
    isoloss_2,
    isoloss_3,
    isoloss_weight_decay,
    isoloss_weight_decay_small,
    long,
)
TABLES: dict[str, Table] = {module.TABLE.name: module.TABLE for module in MODULES}


def find_table(name: str) -> Table:
    if name not in TABLES:
        raise TwofoldError(f"unknown table '{name}'{nearest(name, list(TABLES))}")
    return TABLES[name]
