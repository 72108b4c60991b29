"""The birth of self-supervised learning (Balestriero and LeCun 2024), in the order of the paper.

Rows are samples here, columns are samples in the paper: F[N, K], Y[N, C], G = YYᵀ[N, N]. The paper's V, from the SVD
f_θ(X) = UΣVᵀ, are therefore the left singular vectors of F. Statements keep the notation of the paper.
"""

from twofold_papers.birth.claims import equivalence, gradient, corollary, labels, digits, orthogonal, linear_maps  # noqa: I001 (the paper's order)

__all__ = ["corollary", "digits", "equivalence", "gradient", "labels", "linear_maps", "orthogonal"]
