"""α-CL, Table 2: InfoNCE and the direct rule with a ResNet-50 and batch size 128."""

from twofold_papers.alpha_cl.tables.table_1 import DIFFERS, DIRECT, INFONCE, UNDECAYED, published
from twofold_papers.reproduce.readings import LINEAR
from twofold_papers.reproduce.table import Row, Setting, Table


def resnet50(batch_size: int, caption: str) -> tuple[Setting, ...]:
    return (
        Setting("encoder", "resnet50", caption),
        Setting("batch_size", batch_size, caption),
        Setting("lr", 0.001, caption),
        Setting("lr_scaling", "none", "the paper gives the rate for this batch size"),
        Setting("optimizer", "adam", "section 6"),
        UNDECAYED,
    )


TABLE = Table(
    name="alpha-cl-2",
    paper="alpha-cl",
    number="Table 2",
    title="a larger network, CIFAR-10, ResNet-50, batch size 128",
    columns=(LINEAR,),
    epochs=100,
    settings=resnet50(128, "Table 2's caption"),
    rows=[
        Row("InfoNCE", "contrastive", INFONCE, published((86.39, 0.16), (89.97, 0.14), (90.19, 0.23))),
        Row("α-CL-direct", "alpha-cl", DIRECT, published((87.79, 0.25), (90.41, 0.18), (90.50, 0.21))),
    ],
    differs=DIFFERS,
)
