"""IsoLoss: the losses, the kernel that ties samples together, rates and averages, and the rows of Table 1."""

from twofold.theory.isoloss import losses as losses  # isort: skip  # claims keep the order of these lines
from twofold.theory.isoloss import kernel as kernel  # isort: skip
from twofold.theory.isoloss import dynamics as dynamics  # isort: skip
from twofold.theory.isoloss import averages as averages  # isort: skip
from twofold.theory.isoloss import table as table  # isort: skip
