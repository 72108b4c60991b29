"""Methods that are low after 30 epochs: with longer training, or with a faster teacher."""

from twofold_papers.reproduce.readings import EFFECTIVE_RANK, KNN, LINEAR, ONLINE
from twofold_papers.reproduce.table import Row, Table

TABLE = Table(
    name="catalog-longer",
    paper="twofold",
    number="Slow starters",
    title="methods with a low accuracy after 30 epochs, CIFAR-10, ResNet-18",
    columns=(LINEAR, KNN, ONLINE, EFFECTIVE_RANK),
    epochs=100,
    rows=[
        Row("dino, teacher_momentum=0.99", "dino", {"teacher_momentum": 0.99}, epochs=30),
        Row(
            "dino, teacher_momentum=0.99, soft targets",
            "dino",
            {"teacher_momentum": 0.99, "first_target_temperature": 0.07},
            epochs=30,
            note="no rising temperature",
        ),
        Row("spectral-contrastive", "spectral-contrastive"),
        Row("spectral-contrastive, 200 epochs", "spectral-contrastive", epochs=200),
        Row("barlow-twins", "barlow-twins"),
        Row("dino", "dino"),
        Row("swav", "swav"),
        Row("simsiam, steady_predictor=false", "simsiam", {"steady_predictor": False}, epochs=30),
        Row("simsiam", "simsiam"),
    ],
    findings=(
        lambda our: f"Barlow Twins only starts slowly: it has {our.text('barlow-twins', LINEAR)} % after 100 epochs.",
        lambda our: (
            "If the teacher of DINO follows within 100 steps (`teacher_momentum=0.99`), DINO reaches "
            f"{our.text('dino, teacher_momentum=0.99', LINEAR)} % in 30 epochs."
        ),
        lambda our: (
            "With SimSiam's predictor at a decaying learning rate, as for the other parts, SimSiam reaches "
            f"{our.text('simsiam, steady_predictor=false', LINEAR)} % in 30 epochs, less than with its default."
        ),
        lambda our: (
            f"Spectral contrastive still improves: {our.text('spectral-contrastive', LINEAR)} % after 100 epochs "
            f"and {our.text('spectral-contrastive, 200 epochs', LINEAR)} % after 200; its authors train for 800."
        ),
        "All runs except those of SimSiam for 30 epochs shared the GPU.",
    ),
)
