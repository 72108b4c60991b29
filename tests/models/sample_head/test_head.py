"""Classifier rows that are updated lazily, compared with optimizers that update all rows in every step."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from twofold import objectives
from twofold.errors import TwofoldError
from twofold.models import SampleHead
from twofold.models.sample_head import row_store
from twofold.models.sample_head.row_store import FORMAT, DiskRows

ROWS, DIM, BATCH, DECAY = 40, 6, 5, 0.05


def cosine(steps: int, peak: float = 0.01, warmup: int = 100) -> list[float]:
    down = [peak * (1 + math.cos(math.pi * k / (steps - warmup))) / 2 for k in range(steps - warmup)]
    return [peak * (k + 1) / warmup for k in range(warmup)] + down


def batches(steps: int, dtype: torch.dtype, seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    """Random rows, but never the last two, with gradients of very different sizes."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(steps):
        index = torch.randperm(ROWS - 2, generator=generator)[:BATCH]
        scale = torch.rand(BATCH, 1, generator=generator, dtype=dtype).pow(4)
        made.append((index, scale * torch.randn(BATCH, DIM, generator=generator, dtype=dtype)))
    return made


def dense_adamw(start: Tensor, schedule: list[float], steps: list[tuple[Tensor, Tensor]]) -> Tensor:
    weight = nn.Parameter(start.clone())
    optimizer = torch.optim.AdamW([weight], lr=1.0, weight_decay=DECAY)
    for lr, (index, gradient) in zip(schedule, steps, strict=False):
        weight.grad = torch.zeros_like(weight)
        weight.grad[index] = gradient
        optimizer.param_groups[0]["lr"] = lr
        optimizer.step()
    return weight.detach()


def dense_sgd(start: Tensor, schedule: list[float], steps: list[tuple[Tensor, Tensor]]) -> Tensor:
    """m ← μm + g, θ ← (1−ηλ)θ − ηm on all rows."""
    weight, m = start.clone(), torch.zeros_like(start)
    for lr, (index, gradient) in zip(schedule, steps, strict=False):
        m = 0.9 * m
        m[index] += gradient
        weight = (1 - lr * DECAY) * weight - lr * m
    return weight


@pytest.fixture(autouse=True)
def small_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffer holds only two batches, so that short tests write to the file."""
    monkeypatch.setattr(row_store, "BUFFER_BYTES", 2 * BATCH * (8 + 3 * DIM * 8))


@pytest.mark.parametrize(
    "dtype, tolerance, on_disk", [(torch.float64, 1e-6, True), (torch.float32, 1e-4, False)], ids=["disk", "memory"]
)
def test_lazy_adamw_equals_adamw_on_all_rows(
    dtype: torch.dtype, tolerance: float, on_disk: bool, tmp_path: Path
) -> None:
    schedule, steps = cosine(2000), batches(2000, dtype)
    head = SampleHead(ROWS, DIM, path=tmp_path / "head" if on_disk else None, schedule=schedule, dtype=dtype)
    start = head.dense()
    for number, (index, gradient) in enumerate(steps, start=1):
        head.step(index, gradient)
        if number in (1, 2, 17):
            expected = dense_adamw(start, schedule, steps[:number])
            assert (head.take([3, 39, 0]) - expected[[3, 39, 0]]).abs().max() < tolerance
    expected = dense_adamw(start, schedule, steps)
    assert (head.dense() - expected).abs().max() < tolerance
    assert (expected - start).abs().max() > 0.1
    assert torch.equal(head.dense(), head.dense())


@pytest.mark.parametrize("on_disk", [True, False], ids=["disk", "memory"])
def test_lazy_sgd_equals_sgd_on_all_rows(on_disk: bool, tmp_path: Path) -> None:
    schedule, steps = cosine(300, peak=0.1), batches(300, torch.float64)
    head = SampleHead(
        ROWS, DIM, path=tmp_path if on_disk else None, schedule=schedule, optimizer="sgd", dtype=torch.float64
    )
    start = head.dense()
    for index, gradient in steps:
        head.step(index, gradient)
    torch.testing.assert_close(head.dense(), dense_sgd(start, schedule, steps), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_multistep_equals_the_listing_of_the_paper(optimizer: str) -> None:
    """Each use of a row is one step with its gradient and then steps without, as many as an epoch has."""
    epoch, steps = 7, batches(30, torch.float64)
    schedule = cosine(30, warmup=3)
    head = SampleHead(
        ROWS, DIM, update="multistep", steps_per_epoch=epoch, schedule=schedule,
        optimizer=optimizer, eps=1e-30, dtype=torch.float64,
    )  # fmt: skip
    theta = head.dense()
    m, v = torch.zeros_like(theta), torch.zeros_like(theta)
    for lr, (index, gradient) in zip(schedule, steps, strict=True):
        head.step(index, gradient)
        for zero in range(epoch):
            g = gradient if zero == 0 else torch.zeros_like(gradient)
            if optimizer == "adamw":
                m[index] = 0.9 * m[index] + 0.1 * g
                v[index] = 0.999 * v[index] + 0.001 * g**2
                push = m[index] / (v[index].sqrt() + 1e-30)
            else:
                m[index] = 0.9 * m[index] + g
                push = m[index]
            theta[index] = (1 - lr * DECAY) * theta[index] - lr * push
    torch.testing.assert_close(head.dense(), theta, rtol=1e-12, atol=1e-12)


def test_initial_rows_are_normal_and_depend_on_the_seed() -> None:
    first, again, other = (SampleHead(3000, 64, schedule=[0.1], seed=seed).dense() for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert (first - other).abs().mean() > 0.1
    assert first.mean().abs() < 3e-3 / 8
    torch.testing.assert_close(first.var() * 64, torch.tensor(1.0), rtol=0.02, atol=0)
    correlation = torch.corrcoef(first[:1000].T) - torch.eye(64)
    assert correlation.abs().max() < 5 / math.sqrt(1000)


def test_images_may_occur_twice_in_a_batch() -> None:
    """Sampling with replacement: classes are the distinct images. The reference uses all rows and autograd."""
    head = SampleHead(ROWS, DIM, schedule=cosine(200), dtype=torch.float64)
    weight = nn.Parameter(head.dense().clone())
    optimizer = torch.optim.AdamW([weight], lr=1.0, weight_decay=DECAY)
    repeated = 0
    for lr in cosine(200):
        index = torch.randint(ROWS, (12,))
        z = torch.randn(12, DIM, dtype=torch.float64)
        classes, labels = torch.unique(index, return_inverse=True)
        repeated += len(classes) < 12
        rows = head.take(classes).requires_grad_()
        objectives.batch_cross_entropy(z, rows, labels).total.backward()
        head.step(classes, rows.grad)

        present = torch.zeros(ROWS, dtype=torch.bool).index_fill(0, index, True)
        log_share = (z @ weight.T).masked_fill(~present, -torch.inf).log_softmax(dim=1)
        smooth = log_share.masked_fill(~present, 0).sum(dim=1) / present.sum()
        loss = -(0.2 * log_share[torch.arange(12), index] + 0.8 * smooth).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.param_groups[0]["lr"] = lr
        optimizer.step()
    assert repeated > 100
    assert (head.dense() - weight.detach()).abs().max() < 1e-6


def test_step_without_rows_only_decays(tmp_path: Path) -> None:
    for path in (None, tmp_path / "head"):
        head = SampleHead(4, 3, path=path, schedule=[0.1, 0.1], weight_decay=0.5, dtype=torch.float64)
        start = head.dense()
        head.step([], torch.zeros(0, 3))
        assert head.take([]).shape == (0, 3)
        torch.testing.assert_close(head.dense(), 0.95 * start)


@pytest.mark.parametrize("on_disk", [True, False], ids=["disk", "memory"])
def test_new_schedule_applies_from_the_next_step(on_disk: bool, tmp_path: Path) -> None:
    """After resuming with more epochs, unused rows still catch up with the old learning rates of earlier steps."""
    before, after, steps = cosine(300), cosine(600, peak=0.03), batches(600, torch.float64)
    path = tmp_path / "head" if on_disk else None
    head = SampleHead(ROWS, DIM, path=path, schedule=before, dtype=torch.float64)
    start = head.dense()
    for index, gradient in steps[:250]:
        head.step(index, gradient)
    head.flush()
    state = head.state_dict()
    head.close()
    longer = SampleHead(ROWS, DIM, path=path, schedule=after, dtype=torch.float64)
    if not on_disk:
        longer.load_state_dict(state)
    assert longer.steps == 250
    for index, gradient in steps[250:]:
        longer.step(index, gradient)
    expected = dense_adamw(start, before[:250] + after[250:], steps)
    assert (longer.dense() - expected).abs().max() < 1e-6
    longer.flush()
    longer.close()
    if on_disk:  # the first learning rates are still stored when the file is opened again
        last = SampleHead(ROWS, DIM, path=path, schedule=after, dtype=torch.float64)
        assert (last.dense() - expected).abs().max() < 1e-6


def test_hundred_million_rows_are_created_without_writing_them(tmp_path: Path) -> None:
    head = SampleHead(100_000_000, 128, path=tmp_path / "head", schedule=[1e-3] * 3)
    index = torch.tensor([99_999_999, 0, 12_345_678])
    small = SampleHead(1, 128, schedule=[1e-3] * 3)
    assert torch.equal(head.take(index)[1], small.take([0])[0])
    head.step(index, torch.ones(3, 128))
    head.flush()
    file = (tmp_path / "head" / "rows.bin").stat()
    assert file.st_size == 100_000_000 * (8 + 3 * 128 * 4)
    assert file.st_blocks * 512 < 2**20


def test_invalid_arguments_raise_errors() -> None:
    head = SampleHead(10, 3, schedule=[0.1])
    for broken, message in (
        (lambda: head.take([1, 1]), "distinct"),
        (lambda: head.take([10]), "the classifier has 10 rows"),
        (lambda: head.take([-1]), "the classifier has 10 rows"),
        (lambda: head.step([1], torch.zeros(2, 3)), "shape"),
        (lambda: [head.step([1], torch.zeros(1, 3)) for _ in range(2)], "all 1 steps of the schedule are done"),
        (lambda: SampleHead(10, 3, schedule=[0.1], update="multistep"), "steps_per_epoch"),
        (lambda: SampleHead(10, 3, schedule=[0.1], dtype=torch.float16), "float32 or float64"),
        (lambda: SampleHead(0, 3, schedule=[0.1]), "at least 1"),
        (lambda: SampleHead(10, 3, schedule=[0.1], betas=(0.99, 0.9)), "betas"),
        (lambda: head.take([1.7]), "indices are torch.float32"),
        (lambda: head.take(torch.tensor([True, False])), "indices are torch.bool"),
        *(
            (
                lambda schedule=schedule: SampleHead(10, 3, schedule=schedule),
                "schedule must be a list of learning rates",
            )
            for schedule in (0.1, None, "cosine", len, [[0.1]], [-0.1], [float("nan")])
        ),
        *(
            (lambda keys=keys: SampleHead(10, 3, schedule=[0.1], **keys), "at least 0, the others from 0 to below 1")
            for keys in ({"weight_decay": -1}, {"eps": -1.0}, {"betas": (1.2, 0.9)}, {"momentum": float("nan")})
        ),
    ):
        with pytest.raises(TwofoldError, match=message):
            broken()


def test_python_snippet_of_the_how_to_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "train-a-per-image-classifier.md").read_text()
    monkeypatch.chdir(tmp_path)
    scope: dict[str, SampleHead] = {}
    exec(page.split("```python\n")[1].split("```")[0], scope)
    scope["head"].close()
    assert SampleHead(1_000_000, 128, path="rows-1M", schedule=[1e-3] * 10_000).steps == 1


def test_process_forgets_only_its_own_marks(tmp_path: Path) -> None:
    def opened(share: tuple[int, int], step: int | None = None) -> DiskRows:
        return DiskRows(tmp_path / "head", 4096, 64, {"format": FORMAT}, step, share)

    opened((0, 1)).close()
    one, two = opened((0, 2), 0), opened((1, 2), 0)
    one.mark(3)
    one.forget_older()
    assert {path.name for path in (tmp_path / "head").glob("undo-*")} == {"undo-3.bin", "undo-0-1.bin"}
    for each in (one, two):
        each.close()
