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
        "The rows change D or N, and both changes show this effect. As the ratio rises, the views come together "
        "and the embeddings lose dimensions.\n\n"
        "Below D/N = 2, in the rows with a smaller D, the embeddings fill all dimensions and the views stay apart: "
        "D = 128 has an effective rank of 128 and is seven points worse than D = 1024.\n\n"
        "From D/N = 2 to 8, the ratio has little effect on accuracy here. (But training on 500 digits collapses at "
        "D/N = 8; see `benchmarks/NOTES.md`.) At D/N = 8, the effective rank is 171 with D = 2048 and 102 with a "
        "batch of 128, and accuracy is 0.5 and 1.4 points below the best.\n\n"
        "At D/N = 16, with a batch of 64, the embeddings collapse to two dimensions, and accuracy is twelve points "
        "below the best. For batches smaller than the published 256, Twofold therefore uses D = 2·N by default "
        "(`benchmarks/NOTES.md`). The two rows with this default have not been run yet.\n\n"
        "Large batches also suffer from their smaller number of steps. At the same D/N, a batch of 512 is three "
        "points worse than D = 512, and a batch of 1024 is nine points worse than D = 256. One seed."
    ),
    differs=(
        "The appendix has graphs without numbers, so there are no published numbers to compare with. The values of "
        "D and of the batch size are ours.",
        "The learning rate is proportional to the batch size.",
    ),
)
