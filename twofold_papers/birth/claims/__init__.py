"""The birth of self-supervised learning (Balestriero and LeCun 2024), in the order of the paper.

Rows are samples, where the paper's are columns: F[N, K], Y[N, C], G = YYᵀ[N, N]. So the paper's V, of the SVD of
f_θ(X) = UΣVᵀ, are the left vectors of F here; statements keep the paper's letters.
"""

from twofold_papers.birth.claims import equivalence, gradient, corollary, labels, orthogonal  # noqa: I001 (the paper's order)

__all__ = ["corollary", "equivalence", "gradient", "labels", "orthogonal"]
