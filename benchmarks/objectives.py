"""Measure time and peak memory of all objectives, forward and backward, and compare them with the losses of lightly.

    python -m benchmarks.objectives [--device cuda] [--sizes full] [--only vicreg alpha_cl] [--out FILE]

Shapes: V = 2 views, N samples, D dimensions, float32. Times are medians of single steps. Each step is synchronised, so
that launching small kernels counts, and Twofold and lightly take turns. Memory is the peak above the inputs, including
the gradient. A row is "slower" if the lower quartile of Twofold is above the upper quartile of lightly. If both
libraries compute the same function, values and gradients are compared in float64.

lightly is optional (`pip install --no-deps lightly`). Only its losses are imported, which do not need torchvision.
"""

import argparse
import importlib
import importlib.util
import json
import math
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import Measured, Step, gradient, head_commit, is_slower, machine, measure, out_of_memory
from twofold import objectives
from twofold.linalg import normalized
from twofold.objectives.contrastive import FAMILIES
from twofold.objectives.importance import RULES

VIEWS = 2
SIZES = {
    "full": [(N, D) for N in (256, 1024, 4096) for D in (256, 2048)],
    "small": [(16, 24), (32, 8)],
}
TARGET_TEMPERATURE = 1 / 16  # DINO uses 0.07; lightly stores it in float32, which represents 1/16 exactly
COSINES = 0.25  # scales standard normal numbers to the size of scores with prototypes
EPOCH = 12  # batches per epoch, which sets the number of classifier rows of DIET: 49,152 at N = 4096


@dataclass(frozen=True)
class Peer:
    """The loss of lightly for the same objective, and how ours follows from it."""

    loss: str  # module.Class in lightly.loss
    make: Callable[[type, Tensor], Step]  # takes the class, and z for its shape
    relation: str = "equal"
    ours_of: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = lambda value, gradient: (value, gradient)


@dataclass(frozen=True)
class Case:
    """An objective, named as in `twofold.objectives`, with its parameters."""

    name: str
    make: Callable[[Tensor], Step]  # takes z for its shape and returns the step
    peer: Peer | None = None
    multiple: int | None = None  # N must be a multiple of this number times D


def total(loss: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[[Tensor], Step]:
    """Return the step of an objective that takes only z."""
    return lambda _: lambda z: loss(z, *args, **kwargs).total


def both_orders(objective: Callable[..., Any], with_matrix: bool = False) -> Callable[[Tensor], Step]:
    """Return the step of a predictive objective: each view predicts the other one, without gradient for the target."""

    def make(z: Tensor) -> Step:
        matrix = [torch.eye(z.shape[-1], device=z.device, dtype=z.dtype) / 2] if with_matrix else []
        return lambda z: VIEWS * objective(z, z.detach().roll(-1, dims=0), *matrix).total

    return make


def lightly_cosine(loss: type, _: Tensor) -> Step:
    module = loss()
    return lambda z: module(z[0], z[1].detach()) + module(z[1], z[0].detach())


def diet(z: Tensor) -> Step:
    """Return the step of DIET: one view, and a classifier row for each image of the dataset."""
    N, D = z.shape[1:]
    rows = torch.randn(EPOCH * N, D, device=z.device, dtype=z.dtype) / D**0.5
    labels = EPOCH * torch.arange(N, device=z.device)
    return lambda z: objectives.batch_cross_entropy(z[:1], rows, labels[None]).total


def moco(z: Tensor) -> Step:
    """Return the step of MoCo: the targets are the views without gradient; at N = 4096 the queue has 32,768 entries."""
    queue = torch.randn(8 * z.shape[1], z.shape[-1], device=z.device, dtype=z.dtype)
    return lambda z: objectives.moco(z, z.detach(), queue).total


def dino(z: Tensor) -> Step:
    centre = torch.zeros(z.shape[-1], device=z.device, dtype=z.dtype)
    return lambda z: objectives.dino(z, z.detach(), centre, target_temperature=TARGET_TEMPERATURE).total


def lightly_dino(loss: type, z: Tensor) -> Step:
    # lightly updates the centre in the forward pass, Twofold does not.
    module = loss(z.shape[-1], teacher_temp=TARGET_TEMPERATURE, center_momentum=1.0).to(z)
    return lambda z: module(list(z.detach()), list(z))


def lightly_swav(loss: type, _: Tensor) -> Step:
    module = loss()
    return lambda z: module(list(z * COSINES), [])


def corinfomax(z: Tensor) -> Step:
    covariances = torch.eye(z.shape[-1], device=z.device, dtype=torch.float64).repeat(VIEWS, 1, 1)
    return lambda z: objectives.corinfomax(normalized(z), covariances).total


def with_graph(objective: Callable[..., Any], weight: float) -> Callable[[Tensor], Step]:
    def make(z: Tensor) -> Step:
        graph = objectives.view_graph(z.shape[1], VIEWS, device=z.device, dtype=z.dtype)
        return lambda z: objective(z.flatten(0, 1), graph, weight).total

    return make


def orthogonal_head(z: Tensor) -> Step:
    classes = torch.arange(z.shape[1], device=z.device).repeat(VIEWS)
    return lambda z: objectives.orthogonal_head(z.flatten(0, 1), classes).total


def w_mse(z: Tensor) -> Step:
    torch.manual_seed(0)
    order = torch.randperm(z.shape[1]).to(z.device)
    return lambda z: objectives.w_mse(z, sub_batch=2 * z.shape[-1], order=order).total


def lightly_w_mse(loss: type, z: Tensor) -> Step:
    D = z.shape[-1]
    module = loss(embedding_dim=D, w_size=2 * D, num_samples=VIEWS).to(z.device, z.dtype)
    torch.manual_seed(0)  # its first step then draws the same sub-batches as ours
    return lambda z: module(z.flatten(0, 1))


def of_two(**parameters: Any) -> Callable[[type, Tensor], Step]:
    """Return the step of a loss of lightly that takes two views."""

    def make(loss: type, _: Tensor) -> Step:
        module = loss(**parameters)
        return lambda z: module(z[0], z[1])

    return make


def lightly_frossl(loss: type, _: Tensor) -> Step:
    module = loss()
    return lambda z: module(list(z))


def frossl_of_lightly(value: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Convert value and gradient: lightly does not centre columns, and divides each matrix by its trace, which is D."""
    V, _, D = gradient.shape
    return value + 2 * V * math.log(D), gradient - gradient.mean(dim=1, keepdim=True)


NT_XENT = Peer("ntx_ent_loss.NTXentLoss", of_two(temperature=0.2))
DECOUPLED = Peer("dcl_loss.DCLLoss", of_two(temperature=0.2), "1/τ times ours", lambda v, g: (0.2 * v, 0.2 * g))
COSINE = Peer("negative_cosine_similarity.NegativeCosineSimilarity", lightly_cosine)
CASES = [
    Case("info_nce", total(objectives.info_nce, 0.2), NT_XENT),
    Case(
        "contrastive infonce, epsilon 0",
        total(objectives.contrastive, objectives.family("infonce", temperature=0.2, epsilon=0.0)),
        DECOUPLED,
    ),
    *(Case(f"contrastive {name}", total(objectives.contrastive, objectives.family(name))) for name in FAMILIES),
    *(Case(f"alpha_cl {rule}", total(objectives.alpha_cl, rule)) for rule in RULES),
    Case("alpha_cl direct, through_importance", total(objectives.alpha_cl, through_importance=True)),
    Case("spectral_contrastive", total(objectives.spectral_contrastive)),
    Case(
        "frossl",
        total(objectives.frossl),
        Peer(
            "frossl_loss.FroSSLLoss",
            lightly_frossl,
            "ours − 2V log D, for centred z; gradient centred",
            frossl_of_lightly,
        ),
    ),
    Case(
        "vicreg",
        total(objectives.vicreg, variance=12.5),
        Peer(
            "vicreg_loss.VICRegLoss", of_two(), "equal; lightly halves the variance term, so ours has 12.5 for its 25"
        ),
    ),
    Case(
        "barlow_twins",
        total(objectives.barlow_twins, epsilon=1e-5),
        Peer("barlow_twins_loss.BarlowTwinsLoss", of_two(), "equal, with BatchNorm's epsilon"),
    ),
    Case(
        "w_mse",
        w_mse,
        Peer("wmse_loss.WMSELoss", lightly_w_mse, "equal, with the same sub-batches of 2D samples"),
        multiple=2,
    ),
    Case("asymmetric", both_orders(objectives.asymmetric), COSINE),
    Case("asymmetric with a matrix", both_orders(objectives.asymmetric, with_matrix=True)),
    Case("isoloss", both_orders(objectives.isoloss, with_matrix=True)),
    Case("moco", moco),
    Case("batch_cross_entropy", diet),
    Case(
        "swav",
        lambda _: lambda z: objectives.swav(z * COSINES).total,
        Peer("swav_loss.SwaVLoss", lightly_swav, "equal"),
    ),
    Case("dino", dino, Peer("dino_loss.DINOLoss", lightly_dino, "equal")),
    Case("corinfomax", corinfomax),
    Case("ridge_graph", with_graph(objectives.ridge_graph, 0.1)),
    Case("graph_vicreg", with_graph(objectives.graph_vicreg, 1.0)),
    Case("orthogonal_head", orthogonal_head),
]


def embeddings(N: int, D: int, device: str) -> Tensor:
    """Return similar, centred views with standard deviations around 1, so that VICReg's hinge is partly active."""
    torch.manual_seed(0)
    z = torch.randn(N, D, device=device) + 0.5 * torch.randn(VIEWS, N, D, device=device)
    return (z - z.mean(dim=1, keepdim=True)) * torch.linspace(0.5, 1.5, D, device=device)


def lightly_version() -> str | None:
    try:
        return version("lightly")
    except PackageNotFoundError:
        return None


def lightly_loss(name: str) -> type:
    """Import a loss of lightly. Its packages, which import torchvision, are replaced by empty ones."""
    place = importlib.util.find_spec("lightly")
    folder = Path(*place.submodule_search_locations) if place and place.submodule_search_locations else Path()
    for package in ("loss", "models", "models.modules"):
        empty = ModuleType(f"lightly.{package}")
        empty.__path__ = [str(folder.joinpath(*package.split(".")))]
        sys.modules.setdefault(empty.__name__, empty)
    sys.modules.setdefault("lightly.models.utils", ModuleType("lightly.models.utils"))
    module, _, loss = name.partition(".")
    return getattr(importlib.import_module(f"lightly.loss.{module}"), loss)


def check(case: Case, peer: Peer, z: Tensor) -> dict[str, Any]:
    """Return the relative differences of our value and gradient from those derived from lightly, in float64."""
    z = z.double().requires_grad_()
    try:
        value, own = gradient(case.make(z), z)
        expected, theirs = peer.ours_of(*gradient(peer.make(lightly_loss(peer.loss), z), z))
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        return {"relation": peer.relation, "error": "out of memory"}
    return {
        "relation": peer.relation,
        "loss": ((value - expected).abs() / expected.abs()).item(),
        "gradient": ((own - theirs).norm() / theirs.norm()).item(),
    }


def row(case: Case, z: Tensor, seconds: float, with_lightly: bool) -> dict[str, Any]:
    peer = case.peer if with_lightly else None
    leaf = z.clone().requires_grad_()
    steps: dict[str, Callable[[], Step]] = {"ours": lambda: case.make(leaf)}
    if peer is not None:
        steps["lightly"] = lambda: peer.make(lightly_loss(peer.loss), leaf)
    measured = measure(steps, leaf, seconds)
    ours, theirs = measured["ours"], measured.get("lightly")
    return {
        "objective": case.name,
        "N": z.shape[1],
        "D": z.shape[2],
        "peer": case.peer.loss.rpartition(".")[2] if case.peer else None,
        **{name: asdict(value) if isinstance(value, Measured) else value for name, value in measured.items()},
        "slower": is_slower(ours, theirs) if isinstance(ours, Measured) and isinstance(theirs, Measured) else None,
        "check": None if peer is None else check(case, peer, z),
    }


HEADING = f"{'objective':36}{'N':>5}{'D':>6}{'forward':>9}{'ms':>9}{'MiB':>8}  {'lightly ms':>10}{'MiB':>8}  notes"


def line(result: dict[str, Any], lightly: str | None) -> str:
    def numbers(measured: dict[str, float] | str | None, *names: str) -> str:
        widths = {"forward_ms": 9, "total_ms": 9, "peak_mib": 8}
        if isinstance(measured, dict):
            return "".join(f"{measured[name]:>{widths[name]}.3f}"[: widths[name]] for name in names)
        return f"{measured or '—':>{sum(widths[name] for name in names)}}"

    notes = []
    if result["slower"]:
        notes.append("SLOWER")
    if isinstance(result.get("lightly"), dict) and isinstance(result["ours"], dict):
        notes.append(f"{result['ours']['total_ms'] / result['lightly']['total_ms']:.2f} of the time of lightly")
    if found := result["check"]:
        difference = found.get("error") or f"differences: loss {found['loss']:.0e}, gradient {found['gradient']:.0e}"
        notes.append(difference)
    if result["peer"] and lightly is None:
        notes.append(f"not compared with {result['peer']}: lightly is not installed")
    return (
        f"{result['objective']:36}{result['N']:>5}{result['D']:>6}"
        + numbers(result["ours"], "forward_ms", "total_ms", "peak_mib")
        + "   "
        + numbers(result.get("lightly"), "total_ms", "peak_mib")
        + "  "
        + ", ".join(notes)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--sizes", choices=list(SIZES), default="full")
    parser.add_argument("--only", nargs="+", default=[""], help="measure only objectives whose names start so")
    parser.add_argument("--seconds", type=float, default=0.1, help="approximate seconds to repeat each step")
    parser.add_argument("--commit", default=head_commit())
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/objectives-DATE-DEVICE.json")
    arguments = parser.parse_args()
    out = arguments.out or Path(__file__).parent / "results" / f"objectives-{date.today()}-{arguments.device}.json"
    lightly = lightly_version()
    print(HEADING)
    rows = []
    for N, D in SIZES[arguments.sizes]:
        z = embeddings(N, D, arguments.device)
        for case in CASES:
            if not case.name.startswith(tuple(arguments.only)):
                continue
            if case.multiple is not None and N % (case.multiple * D):
                print(f"{case.name:36}{N:>5}{D:>6}  skipped: N must be a multiple of {case.multiple} D")
                continue
            rows.append(row(case, z, arguments.seconds, lightly is not None))
            print(line(rows[-1], lightly), flush=True)
    for name, relation in {case.peer.loss: case.peer.relation for case in CASES if case.peer}.items():
        print(f"{name.rpartition('.')[2]}: {relation}")
    print(f"slower than lightly: {sum(bool(result['slower']) for result in rows)} of {len(rows)} rows")
    record = {
        "date": str(date.today()),
        "machine": machine(arguments.device),
        "torch": torch.__version__,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "lightly": lightly,
        "commit": arguments.commit,
        "views": VIEWS,
        "rows": rows,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1) + "\n")
    print(out)


if __name__ == "__main__":
    main()
