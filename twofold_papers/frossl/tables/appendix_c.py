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
        "In eq 6, the ratio D/N acts as the weight of the distance between the views, relative to the logarithms. "
        "Both sweeps show this. From D/N = 2 to 8, it has little effect on accuracy here, although training on 500 "
        "digits collapses at D/N = 8 (benchmarks/NOTES.md). Below 2, in the sweep of D, the embeddings fill all "
        "dimensions and the views stay apart: D = 128, with an effective rank of 128, is seven points worse than D = "
        "1024. As the ratio rises, the views come together and the embeddings lose dimensions. At D/N = 8, the "
        "effective rank is 171 with D = 2048 and 102 with a batch of 128, and accuracy is 0.5 and 1.4 points below "
        "the best. At D/N = 16, with a batch of 64, the embeddings collapse to two dimensions, and accuracy is twelve "
        "points below the best. For batches smaller than the published 256, Twofold therefore uses D = 2·N by default "
        "(benchmarks/NOTES.md); the two rows with this default have not been run yet. Large batches also suffer from "
        "their smaller number of steps: at the same D/N, a batch of 512 is three points worse than D = 512, and a "
        "batch of 1024 is nine points worse than D = 256. One seed."
    ),
    differs=(
        "the appendix has graphs without numbers, so there are no published numbers to compare with; the values of D "
        "and of the batch size are ours",
        "the learning rate is proportional to the batch size",
    ),
)
