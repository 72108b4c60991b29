"""Relational methods: the supervised theory. Widths, weights and optimizer are ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twofold.config import Graph
from twofold.keys import Positive, Widths
from twofold.methods.catalog.lazy_modules import methods, models, objectives, relations
from twofold.methods.catalog.recipes import SOLO_LARS
from twofold.methods.registry import entry
from twofold.types import Embeddings, LossTerms

if TYPE_CHECKING:
    from twofold.methods import Method, Parts

RELATIONAL = SOLO_LARS | {"lr": 0.3, "weight_decay": 1e-4}
BIRTH = "The birth of self-supervised learning (Balestriero and LeCun 2024)"
# Fewer dimensions than a batch has rows: with as many, views of an image need not agree. Width, weight and ridge were
# chosen by held-out training images of CIFAR-10 (benchmarks/NOTES.md, "Relational methods").


@entry(
    family="relational",
    paper=BIRTH,
    recipe=RELATIONAL,
    formula="λ tr(HGH (F_cF_cᵀ + λN I)⁻¹)",
    source="ours",
    state="none",
    memory="min(V·N, D)² and (V·N)² in float64",
    choose="When you know which images belong together: labels, some labels, groups, neighbours (`graph.*`).",
)
def ridge_graph(
    parts: Parts, *, ridge: Positive = 0.01, projector: Widths = (2048, 128), graph: Graph = Graph()
) -> Method:
    """Ridge regression to any graph of which images belong together, solved in closed form.

    The embedding ends in BatchNorm: the loss falls with its scale, which means nothing.
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
        "−tr(HGH ZZᵀ)/(R·D) + weight/D · ‖ZᵀHZ/R − I‖²_F, R = V·N rows of Z: the paper's with F = Z/√R and α = weight/R"
    ),
    source="ours",
    state="none",
    memory="(V·N)² and min(V·N, D)²",
    choose="As ridge-graph, without solving a linear system.",
)
def graph_vicreg(
    parts: Parts, *, weight: Positive = 0.1, projector: Widths = (2048, 256), graph: Graph = Graph()
) -> Method:
    """VICReg for any graph: related images together, the covariance near the identity.

    Rows are scaled so that the constraint is on covariances, and the loss so that both terms are means over dimensions.
    """
    relation = relations.graph_of(graph, parts.images)

    def objective(e: Embeddings) -> LossTerms:
        rows, K = e.z.shape[0] * e.z.shape[1], e.z.shape[2]
        loss = objectives.graph_vicreg(e.z.flatten(0, 1) / rows**0.5, relation(e.index, len(e.z)), weight / rows)
        scale = rows / K
        return LossTerms(loss.total * scale, {name: term * scale for name, term in loss.terms.items()})

    few = relations.few_groups(graph, parts.images)
    return methods.Method(parts, models.mlp(parts.features, projector), objective, few_dimensions=few)


@entry(
    family="relational",
    paper=BIRTH + ", appendix B",
    recipe=RELATIONAL,
    formula="(‖F‖² + tr G − 2‖FᵀY‖_*)/R, F = Z/√N, R = V·N rows",
    source="ours",
    state="none",
    memory="D·V·N in float64",
    choose="Groups that are classes, of any number.",
)
def orthogonal_head(parts: Parts, *, projector: Widths = (2048, 256), graph: Graph = Graph()) -> Method:
    """The best orthogonal classifier of the images' groups, by the nuclear norm.

    The embedding ends in BatchNorm, and its columns get the length of those of Y where each image is its own class:
    a free scale would first of all be shrunk.
    """
    relation = relations.classes_of(graph, parts.images)

    def objective(e: Embeddings) -> LossTerms:
        rows = e.z.flatten(0, 1) / len(e.index) ** 0.5
        return objectives.orthogonal_head(rows, relation(e.index, len(e.z)))

    few = relations.few_groups(graph, parts.images)
    return methods.Method(parts, models.mlp(parts.features, projector, last_norm=True), objective, few_dimensions=few)
