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
        "One seed. The recipes are for 100 epochs or many more. So this table shows how fast a method learns at "
        "first, not how far it gets. DIET, S-DIET and `supervised` use one view of each image; the other methods "
        "use two. `quadratic` has few dimensions, as its paper proves for linear networks.\n\n"
        "Six methods scored too low at first because of bugs in our recipes. DINO (43.4 %, as low as an untrained "
        "network) had soft targets from the start. SwAV (68.8 %) used the queue and moved the prototypes too "
        "early. SimSiam (65.7 %) decayed the learning rate of its predictor. Spectral contrastive (62.1 %, with an "
        "effective rank of five) had no weight decay for its norm layers. graph-vicreg (66.0 %) and ridge-graph "
        "(70.5 %) had as many dimensions as a batch has rows, and a weight and a ridge that were too large, so the "
        "views of an image were hardly brought together.\n\n"
        "BYOL is a point below SimSiam. With half of its authors' loss (1 − cos instead of 2 − 2 cos), BYOL "
        "reached 72.3 %, about the same as SimSiam. LARS makes the steps of weights independent of such a factor, "
        "but not the steps of norm layers and biases. With one seed each, the difference may be chance.\n\n"
        "Three methods are still low. The teacher of DINO has a momentum of 0.9995, so it is an average over ten "
        "of these 30 epochs. Barlow Twins catches up after 100 epochs. Spectral contrastive after 200 epochs is "
        "slightly above SimCLR after 100: see the next table.\n\n"
        "The runs of DINO and SwAV shared the GPU with three others, so their images/s cannot be compared. If "
        "several runs followed each other in one process, the memory of later runs includes what earlier runs had "
        "not freed."
    ),
)
