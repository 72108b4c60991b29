"""IsoLoss: the losses, the tangent kernel, rates and their averages, and the rows of Table 1."""

from twofold_papers.isoloss.claims import losses as losses  # isort: skip  # claims keep the order of these lines
from twofold_papers.isoloss.claims import kernel as kernel  # isort: skip
from twofold_papers.isoloss.claims import dynamics as dynamics  # isort: skip
from twofold_papers.isoloss.claims import averages as averages  # isort: skip
from twofold_papers.isoloss.claims import table as table  # isort: skip
