"""α-CL, Table 2: InfoNCE and the direct rule with a ResNet-50 and batch size 128."""

from twofold_papers.alpha_cl.tables.table_1 import DIFFERS, DIRECT, DIRECT_NUMBERS, INFONCE, NCE, UNDECAYED, after
from twofold_papers.reproduce.readings import LINEAR
from twofold_papers.reproduce.table import Row, Setting, Statement, Table


def resnet50(batch_size: int, caption: str) -> tuple[Setting, ...]:
    return (
        Setting("encoder", "resnet50", caption),
        Setting("batch_size", batch_size, caption),
        Setting("lr", 0.001, caption),
        Setting("lr_scaling", "none", "the paper gives the rate for this batch size"),
        Setting("optimizer", "adam", "section 6"),
        UNDECAYED,
    )


# InfoNCE has no numbers on STL-10: they are missing in the text of the paper that we have.
NCE_50 = [
    *after([(86.39, 0.16), (89.97, 0.14), (90.19, 0.23)], data="cifar10", encoder="resnet50"),
    *after([(60.16, 0.48), (65.40, 0.31), (65.53, 0.30)], data="cifar100", encoder="resnet50"),
]
DIRECT_50 = [
    *after([(87.79, 0.25), (90.41, 0.18), (90.50, 0.21)], data="cifar10", encoder="resnet50"),
    *after([(62.93, 0.28), (65.84, 0.14), (65.87, 0.21)], data="cifar100", encoder="resnet50"),
    *after([(83.20, 0.25), (87.17, 0.14), (87.85, 0.21)], data="stl10", encoder="resnet50"),
]
TABLE = Table(
    name="alpha-cl-2",
    paper="alpha-cl",
    number="Table 2",
    title="a larger network, CIFAR-10, ResNet-50, batch size 128",
    columns=(LINEAR,),
    epochs=100,
    settings=resnet50(128, "Table 2's caption"),
    rows=[
        Row("InfoNCE", "contrastive", INFONCE, {LINEAR.title: [*NCE_50, *NCE[LINEAR.title]]}),
        Row("α-CL-direct", "alpha-cl", DIRECT, {LINEAR.title: [*DIRECT_50, *DIRECT_NUMBERS[LINEAR.title]]}),
    ],
    statements=(
        Statement(
            "with ResNet-50, α-CL-direct is better than InfoNCE", "Table 2", LINEAR, "α-CL-direct", "above", "InfoNCE"
        ),
    ),
    differs=DIFFERS,
)
