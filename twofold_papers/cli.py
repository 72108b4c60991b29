"""The commands `verify` and `reproduce`. Importing their modules adds them to the program `twofold`."""

from twofold_papers.reproduce import command as reproduce  # noqa: F401
from twofold_papers.verify import command as verify  # noqa: F401
