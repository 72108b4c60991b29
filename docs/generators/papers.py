"""The first sentences of the page of each paper, and the claims that it lists. Their status is computed."""

from twofold_papers.frossl import linear

# The claims of `twofold verify` that a page lists first, for a paper without experiments.
MAIN_CLAIMS = {
    "birth": (
        "Theorem 1",
        "Theorem 2",
        "Theorem 2 (growth)",
        "section 2.1, boundedness",
        "Corollary 1 (Whitening-MSE)",
        "Corollary 1 (VICReg)",
        "Corollary 1 (σ_k ≥ 1)",
        "Proposition 1 (losses)",
        "section 2.2, best worst case",
        "section 2.2, random labelings",
        "section 2.2, digits",
        "section 2.2, digits (price)",
        "section 3, duplicates",
    )
}

# Sentences after the statements, with the numbers of records that belong to no table.
FURTHER = {
    "frossl": (
        "Figure 2 of the paper trains linear networks on images and states that the variant of FroSSL converges much "
        f"quicker than that of Barlow Twins. {linear.summary()}"
    )
}

INTRODUCTIONS = {
    "s-diet": """
S-DIET treats each image as its own class and computes the cross entropy over the images of the batch only. DIET, its
predecessor, computes it over all images.
""",
    "frossl": """
FroSSL pulls the views of an image together and makes the Frobenius norm of the normalised covariance small, so that
all dimensions of the embeddings are used. The paper says that it learns fast in the first epochs.
""",
    "birth": """
The paper is theory: it writes supervised and self-supervised losses as losses of a graph that connects related images.
Its thesis is that each image as its own class gives the smallest worst error on unknown tasks. It trains no network
with these losses. We do, so the tables below have no published numbers.
""",
    "alpha-cl": """
α-CL gives each pair of images a weight. A rule computes these weights from the distances of the pairs.
""",
    "isoloss": """
The closed-form predictor of DirectPred adds ε to the eigenvalues of the embeddings' correlation and takes their power
α. IsoLoss changes its gradient, so that all eigenvalues grow at the same rate. An eigenvalue is recruited when it is
above a hundredth of the largest. A teacher is an exponential moving average (EMA) of the student's weights.
""",
}
