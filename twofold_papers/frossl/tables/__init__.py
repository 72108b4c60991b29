"""In the order in which they are listed."""

from twofold_papers.frossl.tables import appendix_c, online, spectrum

TABLES = (
    online.TABLE,
    spectrum.TABLE,
    appendix_c.TABLE,
)
