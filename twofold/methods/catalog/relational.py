"""Relational methods, which train on a graph of related images.

The objectives are those of the paper; the projector's widths, the weights and the optimizer are Twofold's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from twofold.config import Graph
from twofold.keys import Positive
from twofold.methods.catalog.common import SOLO_LARS, Projector, methods, models, objectives, relations
from twofold.methods.registry import entry
from twofold.types import Embeddings, LossTerms

if TYPE_CHECKING:
    from twofold.methods import Method, Parts

RELATIONAL = SOLO_LARS | {"lr": 0.3, "weight_decay": 1e-4}
BIRTH = "The birth of self-supervised learning (Balestriero and LeCun 2024)"
OWN = "Twofold's own, since the paper trains no network with this objective"
# The embeddings have fewer dimensions than a batch has rows. With as many dimensions as rows, the views of an image
# need not agree. Width, weight and ridge were chosen on held-out training images of CIFAR-10 (benchmarks/NOTES.md,
# "Relational methods").


@entry(
    family="relational",
    paper=BIRTH,
    recipe=RELATIONAL,
    formula="λ tr(HGH (F_cF_cᵀ + λR I)⁻¹), where F_c = HZ are the R = V·N embeddings minus their mean, and G the graph",
    latex=(
        r"\mathcal{L} = \lambda \operatorname{tr} \left( H G H \left( F_c F_c^\top + \lambda R I \right)^{-1} \right), "
        r"\quad F_c = H Z, \quad H = I - \frac{1}{R} \mathbf{1} \mathbf{1}^\top"
    ),
    symbols=(
        "Z[R, D] are the embeddings, with R = V·N rows for the V views of N images, H subtracts the mean over rows, "
        "and λ is `ridge`. G[R, R] is the graph: G_ij is 1 if rows i and j belong together, else 0; `graph.balance` "
        "changes the 1 to a weight."
    ),
    source=OWN,
    state="none",
    memory="min(V·N, D)² and (V·N)² in float64",
    choose="When you know which images belong together, for example from labels, a few labels, groups or neighbours "
    "(`graph.*`).",
)
def ridge_graph(
    parts: Parts,
    *,
    ridge: Annotated[Positive, "strength λ of the ridge penalty"] = 0.01,
    projector: Projector = (2048, 128),
    graph: Graph = Graph(),
) -> Method:
    """Minimises the error of a ridge regression from embeddings to any graph of related images, in closed form.

    The projector ends in BatchNorm. Without it, larger embeddings would have a smaller loss without being better.
    """
    relation = relations.graph_of(graph, parts.images)

    def objective(e: Embeddings) -> LossTerms:
        return objectives.ridge_graph(e.z.flatten(0, 1), relation(e.index, len(e.z)), ridge)

    few = relations.few_groups(graph, parts.images)
    return methods.Method(parts, models.mlp(parts.features, projector, last_norm=True), objective, few_dimensions=few)


@entry(
    family="relational",
    paper=BIRTH,
    recipe=RELATIONAL,
    formula=(
        "−(2/d)·tr(HGH ZZᵀ)/(R·D) + weight/D · ‖ZᵀHZ/R − I‖²_F, where Z has R = V·N rows and d is the mean degree of "
        "G; this is the paper's loss with F = Z/√R, α = weight/R and the graph 2G/d, times R/D"
    ),
    latex=(
        r"\mathcal{L} = -\frac{2}{d R D} \operatorname{tr} \left( H G H Z Z^\top \right) "
        r"+ \frac{\alpha}{D} \left\lVert \frac{1}{R} Z^\top H Z - I \right\rVert_F^2, "
        r"\quad H = I - \frac{1}{R} \mathbf{1} \mathbf{1}^\top"
    ),
    symbols=(
        "Z[R, D] are the embeddings, with R = V·N rows for the V views of N images, H subtracts the mean over rows, "
        "and α is `weight`. G[R, R] is the graph: G_ij is 1 if rows i and j belong together, else 0; `graph.balance` "
        "changes the 1 to a weight. d is the mean degree of G over the rows of the batch, the sum of G over R. It is 2 "
        "for the graph of two views, and about 2N/C with the labels of C classes."
    ),
    source=(
        f"{OWN}. Of six values of `weight` from 0.01 to 3, 0.1 has the highest mean accuracy on held-out training "
        "images of digits and of CIFAR-10, with graphs of views and of 1, 10 and 100 % of the labels. On CIFAR-10, "
        "0.03 is at most 1 point worse, and 1 is 6 to 7 points worse"
    ),
    state="none",
    memory="(V·N)² and min(V·N, D)²",
    choose="For the same data as ridge-graph, without solving a linear system.",
)
def graph_vicreg(
    parts: Parts,
    *,
    weight: Annotated[Positive, "weight of the distance between the covariance and the identity"] = 0.1,
    projector: Projector = (2048, 256),
    graph: Graph = Graph(),
) -> Method:
    """VICReg for any graph: brings related images together and the covariance close to the identity.

    Rows are scaled so that the constraint applies to covariances. The loss is scaled so that both terms are means over
    dimensions. The graph is scaled to a mean degree of 2, that of two views, because the first term grows with the
    degree and the second does not: with a graph of labels, the same weight would be too small to prevent collapse.
    """
    relation = relations.graph_of(graph, parts.images)

    def objective(e: Embeddings) -> LossTerms:
        rows, K = e.z.shape[0] * e.z.shape[1], e.z.shape[2]
        related = relation(e.index, len(e.z))
        related = related * (2 * rows / related.abs().sum())
        loss = objectives.graph_vicreg(e.z.flatten(0, 1) / rows**0.5, related, weight / rows)
        scale = rows / K
        return LossTerms(loss.total * scale, {name: term * scale for name, term in loss.terms.items()})

    few = relations.few_groups(graph, parts.images)
    return methods.Method(parts, models.mlp(parts.features, projector), objective, few_dimensions=few)


@entry(
    family="relational",
    paper=BIRTH + ", appendix B",
    recipe=RELATIONAL,
    formula="(‖F‖²_F + tr G − 2‖FᵀY‖_*)/R, where F = Z/√N has R = V·N rows, Y are one-hot classes and G = YYᵀ",
    latex=(
        r"\mathcal{L} = \frac{1}{R} \left( \left\lVert F \right\rVert_F^2 + \operatorname{tr} G "
        r"- 2 \left\lVert F^\top Y \right\rVert_* \right), \quad F = \frac{Z}{\sqrt{N}}, \quad G = Y Y^\top"
    ),
    symbols=(
        "Z[R, D] are the embeddings, with R = V·N rows for the V views of N images. Y has one row for each row of Z, "
        "with a 1 in the column of its class; the class is the image's group, or the image itself. ‖·‖_* is the "
        "nuclear norm, the sum of the singular values."
    ),
    source=OWN,
    state="none",
    memory="D·V·N in float64",
    choose="When the groups of images are classes. Any number of classes works.",
)
def orthogonal_head(parts: Parts, *, projector: Projector = (2048, 256), graph: Graph = Graph()) -> Method:
    """Minimises the error of the best orthogonal classifier of image groups, in closed form by the nuclear norm.

    The projector ends in BatchNorm, and the embeddings are scaled so that their columns have the length of Y's columns
    when each image is its own class. With a free scale, training would first shrink the embeddings.
    """
    relation = relations.classes_of(graph, parts.images)

    def objective(e: Embeddings) -> LossTerms:
        rows = e.z.flatten(0, 1) / len(e.index) ** 0.5
        return objectives.orthogonal_head(rows, relation(e.index, len(e.z)))

    few = relations.few_groups(graph, parts.images)
    return methods.Method(parts, models.mlp(parts.features, projector, last_norm=True), objective, few_dimensions=few)
