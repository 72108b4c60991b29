"""FroSSL, Figure 3: the eigenvalues of the embeddings early in training."""

from functools import partial

from twofold_papers.reproduce.curves import eigenvalues
from twofold_papers.reproduce.readings import ENTROPY, condition_number, saturation_step
from twofold_papers.reproduce.table import Figure, Row, Setting, Statement, Table

RANK = 14  # the number of eigenvalues in the figure
APPENDIX = "appendix B.1"
WIDTHS = {"projector": (2048, 2048, 1024)}
CLIPPED = "VICReg, gradients clipped"
VICREG = {"invariance": 25.0, "variance": 25.0, "covariance": 1.0}

TABLE = Table(
    name="frossl-spectrum",
    paper="frossl",
    number="Figure 3",
    title="the top 14 eigenvalues of the embeddings during 5 epochs of SGD",
    columns=(condition_number(RANK), ENTROPY, saturation_step(RANK)),
    epochs=5,
    figures=(Figure("eigenvalues", "spectrum", partial(eigenvalues, ranks=RANK)),),
    settings=(
        Setting("optimizer", "sgd", APPENDIX),
        Setting("lr", 0.1, APPENDIX),
        Setting("batch_size", 256, APPENDIX),
        Setting("encoder", "resnet18", APPENDIX),
        Setting("schedule", "constant", "the paper gives no schedule"),
        Setting("warmup_epochs", 0, "the paper gives no warm-up"),
    ),
    rows=[
        Row("FroSSL", "frossl", WIDTHS, note="D = 1024"),
        Row("VICReg", "vicreg", VICREG | WIDTHS, note="D = 1024"),
        Row("VICReg, its own projector", "vicreg", VICREG, note="D = 2048"),
        Row(CLIPPED, "vicreg", VICREG | WIDTHS | {"clip": 1.0}, note="D = 1024"),
        Row(
            "Barlow Twins",
            "barlow-twins",
            {"weight": 5e-3} | WIDTHS,
            note="D = 1024; its authors recommend λ = 0.005, which we use; the paper cites this as 0.05",
        ),
        Row("SimCLR", "simclr", {"temperature": 0.2, "projector": (2048, 256)}, note="D = 256"),
    ],
    statements=(
        *(
            Statement(
                f"FroSSL's 14th eigenvalue saturates before that of {title}",
                "section 5.2, Figure 3",
                saturation_step(RANK),
                "FroSSL",
                "below",
                other,
                least=50.0,
                published="in the picture",
                is_main=title != "Barlow Twins",
            )
            for title, other in (("SimCLR", "SimCLR"), ("Barlow Twins", "Barlow Twins"), ("VICReg", CLIPPED))
        ),
        *(
            Statement(
                f"FroSSL has the highest entropy: above {title}",
                "section 5.2, Figure 3",
                ENTROPY,
                "FroSSL",
                "above",
                other,
                least=0.1,
                published="in the picture",
                is_main=title != "Barlow Twins",
            )
            for title, other in (("SimCLR", "SimCLR"), ("Barlow Twins", "Barlow Twins"), ("VICReg", CLIPPED))
        ),
        Statement(
            "FroSSL has the best condition number: below SimCLR",
            "section 5.2, Figure 3",
            condition_number(RANK),
            "FroSSL",
            "below",
            "SimCLR",
            published="in the picture",
        ),
    ),
    findings=(
        "VICReg diverges with the paper's learning rate and no warm-up, so the statements about it use clipped "
        "gradients.",
    ),
    differs=(
        "The paper shows its numbers only in the picture, for STL-10 and about 2000 steps. Ours are for CIFAR-10, "
        "where 5 epochs have 975 steps.",
        "We compute the eigenvalues at steps that are 11 % apart.",
        "Crops, colour augmentation and weight decay are those of each method's recipe. The loss of Barlow Twins "
        "has solo-learn's factor of 0.1. The appendix mentions neither.",
        "We take the embeddings before a loss normalises them.",
        "We train in bfloat16.",
        "We compute the eigenvalues of a running covariance of both views. The paper computes those of one batch "
        "of the first view.",
        "We use a momentum of 0.9. The paper does not give one.",
        "We count an eigenvalue as saturated once it stays above 90 % of its final value.",
    ),
)
