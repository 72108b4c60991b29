"""A summary for each paper: which of its results our runs confirm. The findings of each table have the details."""

SUMMARIES = {
    "s-diet": """
S-DIET treats each image as its own class and computes the cross entropy over the images of the batch only. DIET, its
predecessor, computes it over all images.

**Confirmed.** The gradient of the cross entropy over the batch is almost that of the cross entropy over all images.
Normalisation adds four points of accuracy. Features before the projector are better than features after it. S-DIET
needs the least memory of all methods.

**Not confirmed.** S-DIET does not reach the accuracy of methods with two views. After 100 epochs it is five to ten
points behind them. Its accuracy still rises, so 100 epochs are too few to decide.

**Confirmed in part.** The paper reports that, without normalisation, features use few dimensions. We see this only in
DIET's features, and only if their mean is not subtracted: these features are never negative, so they have a large mean.
If the mean is subtracted, DIET's features use more dimensions than those of S-DIET. We think that the published numbers
are those of features whose mean was not subtracted.
""",
    "frossl": """
**Confirmed.** FroSSL learns fast: in a run of 100 epochs it is ahead of VICReg, Barlow Twins and SimCLR at epochs 3,
10 and 30. Its eigenvalues grow sooner than those of Barlow Twins and SimCLR.

**Not confirmed.** FroSSL is not the fastest method everywhere. VICReg is faster in runs of 30 epochs. With clipped
gradients, VICReg's eigenvalues also grow faster. After 100 epochs, FroSSL is behind all three other methods. The first
epochs in the paper are part of a run of 500 epochs on STL-10. Ours are part of short runs on CIFAR-10, in which the
learning rate falls during these epochs. We think that this difference and the warm-up decide which method is first.

**Not confirmed.** If the logarithm is left out as the paper states it, our encoder learns nothing.

**Confirmed in part.** FroSSL has no weight to tune, but the ratio of the embedding dimension D to the batch size N acts
like a weight. Between D/N = 2 and 8, it has little effect.

The only long run is that of VICReg, our best method after 100 epochs. It reaches 90.9 % after 1000 epochs; the paper
has 92.1 %.
""",
    "birth": """
The results of this paper are theory, and `twofold verify birth` checks them numerically. We confirm these results,
except for the statements that [the errata](../errata.md) correct:

- Any supervised loss with a linear head is also the loss of a graph, in which images of the same class are connected.
- Self-supervised losses are losses of a graph in which the views of an image are connected.
- The losses have the minima that the paper states.

The paper does not train a network with its objectives. We do. They work, but less well than VICReg and W-MSE after the
same number of epochs. We think that the recipes cause this difference: we chose ours in a few runs, whereas those of
VICReg and W-MSE are the result of many runs.
""",
    "alpha-cl": """
α-CL gives each pair of images a weight. A rule computes these weights from the distances of the pairs.

**Confirmed.** α-CL with the direct rule is better than InfoNCE. The entropy rule gives the same result as InfoNCE. With
the quadratic loss, the embeddings use only three dimensions.

**Higher than published.** Our numbers for Table 1 are above the published ones, except those of the square rule and
of the rule r_γ in its derived form. We think that the reason is our crops, colour augmentation and schedule: with them,
held-out images are classified better than with the authors' settings.

**Not confirmed.** The rule r_γ in its derived form does not work: with this many negatives, all of its weights are
equal.

**Not decided.** One seed cannot show the smaller differences between rules, such as the slight advantage of normalised
weights.
""",
    "isoloss": """
An eigenvalue of the embeddings is recruited when it grows above a hundredth of the largest. The closed-form predictor
adds ε to the eigenvalues and then takes their power α. "Without a teacher" means without an exponential moving average
(EMA) of the student's weights.

**Confirmed.** With the cosine distance, IsoLoss recruits more eigenvalues than DirectPred and BYOL and learns faster.
With a teacher, it is ahead of both after 100 epochs. Without a teacher, DirectPred and DirectCopy fail, whereas IsoLoss
trains with the settings of the authors' code. Without a teacher, IsoLoss recruits fewer eigenvalues. With more weight
decay, DirectPred recruits fewer eigenvalues.

**Not confirmed.** Without a teacher, IsoLoss does not train with the published settings. The momentum of the
predictor's correlation makes the difference to the authors' code. With α = 1, IsoLoss trains with neither of
the two settings. We think that training without a teacher needs three things: the gradient of IsoLoss, a predictor that
does not lag behind the network, and a predictor without ε. With α = 1, ε is 0.25 in the authors' code.

**Not confirmed so far.** IsoLoss does not recruit all eigenvalues: after 100 epochs it has 181 of 256, and the number
still rises. In short runs of a small network, IsoLoss also recruits fewer eigenvalues with more weight decay. We have
not run Figure 8 with a ResNet-18.
""",
}
