"""S-DIET: memory-efficient self-supervised contrastive learning with a supervised loss."""

# In the paper's order.
from twofold.theory.s_diet import critical  # noqa: F401, I001
from twofold.theory.s_diet import equivalence  # noqa: F401
from twofold.theory.s_diet import suppression  # noqa: F401
from twofold.theory.s_diet import normalised  # noqa: F401
from twofold.theory.s_diet import batch  # noqa: F401
from twofold.theory.s_diet import optimizer  # noqa: F401
