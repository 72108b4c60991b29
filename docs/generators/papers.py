"""What our runs and computations confirm of each paper, in short. The findings of a table have the details."""

SUMMARIES = {
    "s-diet": """
**Confirmed.** The gradient of batch cross entropy is almost that of full cross entropy. Normalisation adds four
points of accuracy. Features before the projector are better than features after it. S-DIET needs the least memory.

**Not confirmed.** S-DIET does not reach the accuracy of methods with two views. After 100 epochs it is five to ten
points behind them. Its accuracy still rises, so 100 epochs are too few to decide.

**Confirmed in part.** The paper reports that few dimensions are learned without normalisation. We see this only in
DIET's features, and only if their mean is not subtracted: these features are positive. Centred, they have more
dimensions than those of S-DIET. We think that the published numbers are of features that are not centred.
""",
    "frossl": """
**Confirmed.** FroSSL learns fast: in a run of 100 epochs it is ahead of VICReg, Barlow Twins and SimCLR at epochs 3,
10 and 30. Its eigenvalues grow sooner than those of Barlow Twins and SimCLR.

**Not confirmed.** FroSSL is not the fastest method everywhere. VICReg is faster in runs of 30 epochs; with clipped
gradients, its eigenvalues grow faster too. After 100 epochs, FroSSL is not ahead of the three other methods. The
paper's first epochs belong to a run of 500 epochs on STL-10. Ours belong to short runs on CIFAR-10, in which the
learning rate falls during these epochs. We think that this difference and the warm-up decide which method is first.

**Confirmed in part.** FroSSL has nothing to tune as long as D/N is between 2 and 8: the dimension of the embedding
and the batch size are its trade-off. Without the logarithm, as published, nothing is learned.

The long run uses VICReg, our best method after 100 epochs. It reaches 90.9 % after 1000 epochs, and 92.1 % in the
paper.
""",
    "birth": """
The statements of this paper are theory, and `twofold verify birth` checks them numerically. Any supervised loss with
a linear head is the loss of a graph. Self-supervised losses are those of a graph of views. The stated minima hold.
The exceptions are the statements that [the errata](../errata.md) correct.

The paper does not train a network with its objectives. We do, and they work, though less well than VICReg and W-MSE
after the same number of epochs. We think that the recipes cause this difference: ours come from a few runs, those of
VICReg and W-MSE from many.
""",
    "alpha-cl": """
**Confirmed.** α-CL with the direct rule is better than InfoNCE. InfoNCE is the entropy rule. The quadratic loss
learns three dimensions.

**Higher than published.** Our numbers for Table 1 are above the published ones, except those of the square rule and
of r_γ as derived. We think that our crops, colours and schedule cause this: with them, held-out images are classified
better than with the authors' settings.

**Not confirmed.** One seed cannot show the smaller differences between rules, such as the slight advantage of
normalised weights. The rule r_γ as derived does not work: with this many negatives its weights are uniform.
""",
    "isoloss": """
**Confirmed.** With the cosine distance, IsoLoss recruits more eigenvalues than DirectPred and BYOL and learns faster.
With a teacher it is ahead of both after 100 epochs. Without a teacher, DirectPred and DirectCopy fail, and IsoLoss
trains with the settings of the authors' code. Without a teacher, fewer eigenvalues are recruited, as published.
Weight decay costs DirectPred eigenvalues, as published.

**Not confirmed.** Without a teacher, IsoLoss does not train with the published settings, nor with α = 1. The momentum
of the predictor's correlation decides whether it trains with the published ones. We think that training without a
teacher needs three things: the gradient of IsoLoss, a predictor that does not lag behind the network, and a predictor
without ε. With α = 1, ε is 0.25 in the authors' code.

**Not seen yet.** IsoLoss does not recruit all eigenvalues: after 100 epochs it has 181 of 256, and the number still
rises. In short runs of a small network, weight decay costs IsoLoss eigenvalues too. We did not run Figure 8 with a
ResNet-18.
""",
}
