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
        "One seed. The recipes are for 100 epochs or many more, so this table shows how fast a method learns at "
        "first, not how far it gets. DIET, S-DIET and `supervised` use one view of an image; the other methods use "
        "two. `quadratic` has few dimensions, as its paper proves for linear networks.\n\n"
        "Some methods scored too low at first because of bugs in our recipes. DINO (43.4 %, as low as an untrained "
        "network) had soft targets from the start. SwAV (68.8 %) used the queue and moved the prototypes too early. "
        "SimSiam (65.7 %) decayed the learning rate of its predictor. Spectral contrastive had 62.1 % and an "
        "effective rank of five while weight decay did not apply to its norms. graph-vicreg (66.0 %) and ridge-graph "
        "(70.5 %) had as many dimensions as a batch has rows, and a weight and a ridge that were too large, so the "
        "views of an image were hardly brought together.\n\n"
        "BYOL is a point below SimSiam. With half of its authors' loss (1 − cos instead of 2 − 2 cos) it was equal, "
        "at 72.3 %. LARS removes this factor from the steps of weights, but not from those of norms and biases. With "
        "one seed each, the difference may be chance.\n\n"
        "Three methods are still low. DINO's teacher has a momentum of 0.9995 and is thus an average over ten of "
        "these 30 epochs. Barlow Twins catches up after 100 epochs. Spectral contrastive after 200 epochs is slightly "
        "above SimCLR after 100; see the next table.\n\n"
        "The runs of DINO and SwAV shared the GPU with three others, so their images/s mean nothing. If several runs "
        "followed each other in one process, the memory includes what earlier runs had not freed."
    ),
)
