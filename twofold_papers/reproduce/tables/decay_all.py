"""Weight decay for norms and biases, at reduced scale, for the methods whose authors or solo-learn have it."""

from typing import Any

from twofold_papers.reproduce import small
from twofold_papers.reproduce.readings import EFFECTIVE_RANK, KNN, LINEAR, ONLINE
from twofold_papers.reproduce.table import Row, Setting, Table

NOTES = {
    "MoCo v2": "solo-learn's mocov2plus.yaml, with SGD",
    "SimSiam": "solo-learn's simsiam.yaml, with SGD",
    "CorInfoMax": "the authors' code (serdarozsoy/corinfomax-ssl, optim_utils.py)",
    "W-MSE": "solo-learn's wmse.yaml, with Adam",
}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "MoCo v2": ("moco", {"queue": 4096}),
    "SimSiam": ("simsiam", {"projector": (1024, 1024, 1024), "predictor_width": 256}),
    "CorInfoMax": ("corinfomax", {"projector": (1024, 1024, 64)}),
    "W-MSE": ("w-mse", {}),
}

TABLE = Table(
    name="decay-all-small",
    paper="twofold",
    number="Weight decay of norms",
    title=f"weight decay with and without norms and biases; {small.TITLE}",
    columns=(LINEAR, KNN, ONLINE, EFFECTIVE_RANK),
    epochs=30,
    data=small.DATA,
    settings=(*small.SETTINGS, Setting("batch_size", 256, "solo-learn")),
    rows=[
        Row(
            f"{name}{', all decayed' * decayed}",
            method,
            settings | ({"decay_all": True} if decayed else {}),
            note=NOTES[name] if decayed else "",
        )
        for name, (method, settings) in METHODS.items()
        for decayed in (False, True)
    ],
    findings=(
        lambda our: (
            "If weight decay also applies to norms and biases, linear accuracy is "
            + "; ".join(f"{our.change(f'{name}, all decayed', name, LINEAR)} for {name}" for name in METHODS)
            + "."
        ),
    ),
    differs=(
        *small.DIFFERS,
        "MoCo's queue has 4,096 embeddings, because 65,536 would be 13 times the number of images.",
        "The projectors of SimSiam and CorInfoMax are half as wide as in their recipes.",
    ),
)
