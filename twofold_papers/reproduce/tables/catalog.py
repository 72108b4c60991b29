"""Every method of the catalog with its defaults for 30 epochs. There are no published numbers for this table."""

from twofold.methods import CATALOG
from twofold_papers.reproduce.readings import EFFECTIVE_RANK, KNN, LINEAR, ONLINE
from twofold_papers.reproduce.table import Row, Table

TABLE = Table(
    name="catalog",
    paper="twofold",
    number="All methods",
    title="every method with its defaults, CIFAR-10, ResNet-18",
    columns=(LINEAR, KNN, ONLINE, EFFECTIVE_RANK),
    epochs=30,
    rows=[Row(method, method) for method in CATALOG],
    findings=(
        "The recipes are for 100 epochs or many more, so this table shows how fast a method learns at first. "
        "DIET, S-DIET and `supervised` use one view of each image, the other methods two.",
        lambda our: (
            "Three methods are low here: DINO, whose teacher of momentum 0.9995 is an average over ten of the 30 "
            f"epochs ({our.text('dino', LINEAR)} %), Barlow Twins ({our.text('barlow-twins', LINEAR)} %) and spectral "
            f"contrastive ({our.text('spectral-contrastive', LINEAR)} %); the next table trains them longer."
        ),
        lambda our: (
            f"`quadratic` has few dimensions (effective rank {our.text('quadratic', EFFECTIVE_RANK, '.0f')}), as "
            "its paper proves for linear networks."
        ),
        "The runs of DINO and SwAV shared the GPU with three others, so their images/s cannot be compared.",
    ),
)
