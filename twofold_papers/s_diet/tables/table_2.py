"""S-DIET, Table 2: how similar the gradients of batch cross entropy and of full cross entropy are."""

from twofold_papers.reproduce.published import published
from twofold_papers.reproduce.readings import Column
from twofold_papers.reproduce.table import Row, Statement, Table

BATCH = Column("cosine", lambda line: line.get("batch"), ".4f")
CORRECTED = Column("cosine, sampled softmax", lambda line: line.get("corrected"), ".4f")
THEORY = Column("√((1−1/b)/(1−1/n))", lambda line: line.get("theory"), ".4f")
PUBLISHED = {
    "resnet18": {64: 0.9944, 128: 0.9965, 256: 0.9975, 512: 0.9980},
    "resnet50": {64: 0.9960, 128: 0.9980, 256: 0.9990, 512: 0.9995},
}
TITLES = {
    f"{encoder.replace('resnet', 'ResNet-')}, b = {size}": value
    for encoder, values in PUBLISHED.items()
    for size, value in values.items()
}

TABLE = Table(
    name="s-diet-2",
    paper="s-diet",
    number="Table 2",
    title="cosine between the encoder's gradients of batch and of full cross entropy at initialisation, batch size b",
    columns=(BATCH, CORRECTED, THEORY),
    epochs=0,
    benchmark="gradient-cosine",
    command="python -m benchmarks.gradient_cosine --data cifar10",
    rows=[
        Row(
            f"{encoder.replace('resnet', 'ResNet-')}, b = {size}",
            "",
            {"encoder": encoder, "b": size},
            {BATCH.title: published({"cifar100": value}, encoder=encoder)},
        )
        for encoder, values in PUBLISHED.items()
        for size, value in values.items()
    ],
    statements=(
        *(
            Statement(
                f"with {encoder} and b = {size}, the cosine is at least {value}",
                "Table 2",
                BATCH,
                f"{encoder}, b = {size}",
                "at least",
                least=0.001,
            )
            for encoder, size, value in (("ResNet-18", 256, 0.9975), ("ResNet-50", 256, 0.9990))
        ),
        Statement(
            "larger networks have a higher cosine (b = 128)",
            "section 6.1.2",
            BATCH,
            "ResNet-50, b = 128",
            "above",
            "ResNet-18, b = 128",
            least=0.0002,
        ),
    ),
    findings=(
        "At initialisation, the sampled-softmax correction changes nothing.",
        lambda our: (
            f"Of {len(TITLES)} cosines, {sum(our.mean(name, BATCH) >= value for name, value in TITLES.items())} are at "
            f"least the published ones, and {sum(our.mean(name, BATCH) >= our.mean(name, THEORY) for name in TITLES)} "
            "are at least √((1−1/b)/(1−1/n)), the value for the gradient with respect to the embeddings (b: batch "
            "size, n: number of images)."
        ),
    ),
    differs=(
        "We use CIFAR-10, the paper CIFAR-100.",
        "We use one random batch. The paper does not say how many it uses.",
    ),
)
