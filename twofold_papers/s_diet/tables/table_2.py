"""S-DIET, Table 2: how near the gradient of batch cross entropy is to that of full cross entropy."""

from twofold_papers.reproduce.readings import Column
from twofold_papers.reproduce.table import Printed, Row, Table

BATCH = Column("cosine", lambda line: line.get("batch"), ".4f")
CORRECTED = Column("cosine, sampled softmax", lambda line: line.get("corrected"), ".4f")
THEORY = Column("√((1−1/b)/(1−1/n))", lambda line: line.get("theory"), ".4f")
IN_PRINT = {
    "resnet18": {64: 0.9944, 128: 0.9965, 256: 0.9975, 512: 0.9980},
    "resnet50": {64: 0.9960, 128: 0.9980, 256: 0.9990, 512: 0.9995},
}

TABLE = Table(
    name="s-diet-2",
    paper="s-diet",
    number="Table 2",
    title="cosine of the encoder's gradients at initialisation, by batch size b",
    columns=(BATCH, CORRECTED, THEORY),
    epochs=0,
    benchmark="gradient-cosine",
    command="python -m benchmarks.gradient_cosine --data cifar10",
    rows=[
        Row(
            f"{encoder.replace('resnet', 'ResNet-')}, b = {size}",
            "",
            {"encoder": encoder, "b": size},
            {BATCH.title: [Printed(value)]},
        )
        for encoder, values in IN_PRINT.items()
        for size, value in values.items()
    ],
    findings=(
        "Batch cross entropy is as near to full cross entropy as the paper says, and nearer than √((1−1/b)/(1−1/n)), "
        "which is for the gradient of the embeddings alone; one of eight cosines is below the printed one, by less "
        "than a thousandth. At initialisation sampled softmax changes nothing. That larger networks are nearer is not "
        "seen: ResNet-50 is, at one of four batch sizes."
    ),
    differs=("the paper's is on CIFAR-100", "one draw of images; how many the paper has it does not say"),
)
