"""The tables, in the order of `twofold reproduce --list`."""

from twofold_papers.frossl.tables import appendix_c, imagenet, online, small, spectrum

TABLES = (
    online.TABLE,
    spectrum.TABLE,
    appendix_c.TABLE,
    imagenet.TABLE,
    small.TABLE,
    small.DIGITS,
)
