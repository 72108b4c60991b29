"""The tables, in the order of `twofold reproduce --list`."""

from twofold_papers.frossl.tables import appendix_c, online, spectrum

TABLES = (
    online.TABLE,
    spectrum.TABLE,
    appendix_c.TABLE,
)
