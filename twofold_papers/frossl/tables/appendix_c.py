"""FroSSL, appendix C: the output dimension of the projector and the batch size."""

from twofold_papers.reproduce.readings import EFFECTIVE_RANK, LINEAR
from twofold_papers.reproduce.table import Row, Setting, Table

PUBLISHED = {"projector": (2048, 2048, 1024)}

TABLE = Table(
    name="frossl-appendix-c",
    paper="frossl",
    number="Appendix C",
    title="the output dimension D of the projector, and the batch size N",
    columns=(LINEAR, EFFECTIVE_RANK),
    epochs=30,
    settings=(
        Setting("encoder", "resnet18", "section 6.1"),
        Setting("optimizer", "lars", "section 6.1"),
        Setting("lr", 0.3, "section 6.1"),
        Setting("weight_decay", 1e-6, "section 6.1"),
    ),
    rows=[
        *(
            Row(f"D = {dimension}", "frossl", {"projector": (2048, 2048, dimension)})
            for dimension in (128, 256, 512, 1024, 2048)
        ),
        *(Row(f"batch {size}", "frossl", {"batch_size": size, **PUBLISHED}) for size in (64, 128, 512, 1024)),
        *(Row(f"batch {size}, D = {2 * size}", "frossl", {"batch_size": size}) for size in (64, 128)),
    ],
    findings=(
        "In eq 6, the ratio D/N acts as the weight of the distance between the views, relative to the logarithms.",
        lambda our: (
            f"With D = 128, the embeddings fill all dimensions (effective rank "
            f"{our.text('D = 128', EFFECTIVE_RANK, '.0f')}) and the views stay apart: it is "
            f"{our.apart('D = 128', 'D = 1024', LINEAR)} D = 1024."
        ),
        lambda our: (
            f"With a batch of 64 (D/N = 16), the embeddings collapse to an effective rank of "
            f"{our.text('batch 64', EFFECTIVE_RANK, '.0f')}, {our.apart('batch 64', 'D = 1024', LINEAR)} the batch of "
            "256, so Twofold uses D = 2·N for small batches."
        ),
        lambda our: (
            f"Large batches take fewer steps: a batch of 1024 is {our.apart('batch 1024', 'D = 1024', LINEAR)} "
            "that of 256."
        ),
    ),
    differs=(
        "The appendix has graphs without numbers, so there are no published numbers to compare with. The values of "
        "D and of the batch size are ours.",
        "The learning rate is proportional to the batch size.",
    ),
)
