"""The first sentences of the page of each paper: what its method is. The statements and their status are computed."""

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
It trains no network with them. We do, so the table below has no published numbers.
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
