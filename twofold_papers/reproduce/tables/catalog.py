"""Every method of the catalog with its defaults, 30 epochs: ours alone, there is nothing in print to set beside it."""

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
        "One seed, and recipes that were made for 100 epochs or many more: the table says how soon a method gets "
        "somewhere, not how far. `quadratic` has few dimensions, as its paper proves of linear networks, and DIET, "
        "S-DIET and `supervised` see one view of an image where the others see two. Lower than they should be were "
        "first DINO (43.4 %, an untrained network's number), SwAV (68.8 %) and SimSiam (65.7 %), all by faults of "
        "ours: targets that were soft from the start, a queue and prototypes that moved too soon, a predictor whose "
        "learning rate decayed. Spectral contrastive had 62.1 % and five dimensions while weight decay spared its "
        "norms. graph-vicreg (66.0 %) and ridge-graph (70.5 %) had as many dimensions as a batch has rows, and too "
        "large a weight and ridge, and so little need to bring the views of an image together. BYOL is a point below "
        "SimSiam. With half of its authors' loss, 1 − cos for 2 − 2 cos, it was level, at 72.3 %: LARS takes the "
        "factor out of the steps of weights, though not of norms and biases; one seed each, so this may be chance. "
        "Low are still DINO, whose teacher has a momentum of 0.9995 and so is a mean over ten of these 30 epochs, "
        "Barlow Twins, which has caught up after 100, and spectral contrastive, which has after 200 a little more "
        "than SimCLR after 100 (the table that follows). Runs of DINO and SwAV shared the device with three others, "
        "so their images/s count for nothing. Where runs followed each other in one process, the memory shown "
        "includes what earlier ones had left; theirs alone is lower."
    ),
)
