"""S-DIET, Table 6: GPU memory."""

from twofold_papers.reproduce.published import Published
from twofold_papers.reproduce.readings import Column
from twofold_papers.reproduce.table import Row, Statement, Table

MIB = Column("MiB", lambda line: line.get("MiB"), ",.0f")
RATIO = Column("fraction of SimCLR's memory", lambda line: line.get("to simclr"), ".3f")
METHODS = ("s-diet", "diet", "simclr", "simsiam", "barlow-twins", "byol")
# In MiB, by network and size of the images: those of CIFAR, Tiny-ImageNet and ImageNet-100. BYOL runs out of memory on
# ImageNet-100.
PUBLISHED = {
    ("resnet18", 32): (2312, 2556, 3896, 3964, 4026, 4512),
    ("resnet50", 32): (7770, 9720, 16408, 16562, 17090, 17296),
    ("resnet50", 64): (2976, 6676, 4352, 4390, 4532, 4842),
    ("resnet50", 224): (23634, 31164, 40322, 45264, 44698, None),
}
DATA = {32: "", 64: ", Tiny-ImageNet", 224: ", ImageNet-100"}
NUMBERS = [
    (encoder, size, method, value, dict(zip(METHODS, values, strict=True))["simclr"])
    for (encoder, size), values in PUBLISHED.items()
    for method, value in zip(METHODS, values, strict=True)
]


def published_mib(method: str, encoder: str, size: int) -> int | None:
    """The published memory with 32-bit precision and batch size 256; None if the paper has none."""
    return dict(zip(METHODS, PUBLISHED.get((encoder, size), ()), strict=False)).get(method)


def row(encoder: str, size: int, method: str, value: int | None, simclr: int | None) -> Row:
    numbers = {}
    if value is not None and simclr is not None:
        numbers = {MIB.title: [Published(value)], RATIO.title: [Published(round(value / simclr, 3))]}
    settings = {"encoder": encoder, "size": size, "method": method, "precision": "float32"}
    note = "out of memory in the paper" if value is None else ""
    return Row(f"{encoder.replace('resnet', 'ResNet-')}{DATA[size]}, {method}", "", settings, numbers, note=note)


TABLE = Table(
    name="s-diet-6",
    paper="s-diet",
    number="Table 6",
    title="GPU memory with batch size 256 and 32-bit precision; images of CIFAR, unless the row says so",
    columns=(MIB, RATIO),
    epochs=0,
    benchmark="memory-cuda",
    command="python -m benchmarks.memory",
    rows=[row(*each) for each in NUMBERS],
    statements=(
        *(
            Statement(
                f"with {encoder}, S-DIET needs less memory than {other.upper()}",
                "section 6.2, Table 6",
                MIB,
                f"{encoder}, s-diet",
                "below",
                f"{encoder}, {other}",
                least=10.0,
            )
            for encoder, other in (("ResNet-18", "diet"), ("ResNet-50", "diet"))
        ),
        *(
            Statement(
                f"with {encoder}, S-DIET's fraction of SimCLR's memory",
                "Table 6",
                RATIO,
                f"{encoder}, s-diet",
                "equal",
                by=0.02,
                least=0.0,
            )
            for encoder in ("ResNet-18", "ResNet-50")
        ),
    ),
    findings=(
        "One view instead of two halves the memory for the backward pass but not that for weights, gradients and "
        "AdamW's moments, so we do not know how the published fraction with ResNet-50 can be below one half.",
    ),
    differs=(
        "The paper measured on an A40 and does not say how. Our numbers are the largest memory that PyTorch "
        "allocated on an H200.",
        "The rows of S-DIET and SimCLR are newer than the others. Since then, a step frees the gradients of the "
        "step before, which saved 28 and 23 MiB with ResNet-18. The fractions of the other rows are relative to "
        "the earlier number of SimCLR.",
    ),
)
