"""S-DIET: memory-efficient self-supervised contrastive learning with a supervised loss."""

# In the paper's order.
from twofold_papers.s_diet.claims import critical  # noqa: F401, I001
from twofold_papers.s_diet.claims import equivalence  # noqa: F401
from twofold_papers.s_diet.claims import suppression  # noqa: F401
from twofold_papers.s_diet.claims import normalised  # noqa: F401
from twofold_papers.s_diet.claims import batch  # noqa: F401
from twofold_papers.s_diet.claims import optimizer  # noqa: F401
