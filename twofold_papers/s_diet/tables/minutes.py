"""S-DIET and DIET compared with SimCLR and FroSSL, after the same epochs and after the same minutes."""

from twofold_papers.reproduce.readings import KNN, LINEAR, MINUTES
from twofold_papers.reproduce.table import Row, Table
from twofold_papers.s_diet.tables.table_3 import PROJECTED

TABLE = Table(
    name="s-diet-minutes",
    paper="s-diet",
    number="Not in the paper",
    title="methods with their defaults after the same epochs and after the same minutes, CIFAR-10, ResNet-18",
    columns=(LINEAR, KNN, MINUTES),
    epochs=100,
    rows=[
        Row("S-DIET", "s-diet", probes=PROJECTED),
        Row("DIET", "diet"),
        Row("SimCLR", "simclr"),
        Row("FroSSL", "frossl"),
        Row("S-DIET, as long as FroSSL", "s-diet", epochs=165, probes=PROJECTED),
    ],
    findings=(
        lambda our: (
            f"After the same number of epochs, S-DIET is {our.apart('S-DIET', 'DIET', LINEAR)} DIET and "
            f"{our.apart('S-DIET', 'SimCLR', LINEAR)} SimCLR, which uses two views."
        ),
        lambda our: (
            "After the same number of minutes as FroSSL, S-DIET is "
            f"{our.apart('S-DIET, as long as FroSSL', 'FroSSL', LINEAR)} FroSSL."
        ),
        "S-DIET was the first run of its process, so its time includes compiling (an earlier run took 87 s).",
    ),
    differs=(
        "The paper has no such table.",
        "The last row trains for as many epochs as S-DIET completes on one H200 in FroSSL's time.",
    ),
)
