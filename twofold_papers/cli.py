"""The commands that this package adds to `twofold`: importing the modules registers them."""

from twofold_papers.reproduce import command as reproduce  # noqa: F401
from twofold_papers.verify import command as verify  # noqa: F401
