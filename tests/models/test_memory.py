"""Queue, centre and running covariance compared with lists and sums, and restored from their state dict."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from twofold.models import Centre, Progress, Prototypes, Queue, RunningCovariance, Unit, rising_momentum


def step(views: int, samples: int, first: int) -> tuple[Tensor, Tensor]:
    return torch.randn(views, samples, 3), torch.arange(first, first + samples)


@pytest.mark.parametrize("size", [1, 4, 6, 7, 12, 30])
@pytest.mark.parametrize("views, samples", [(1, 3), (2, 3), (2, 5)])
def test_queue_contains_the_newest_embeddings(size: int, views: int, samples: int) -> None:
    """Also if the batch size does not divide the length of the queue, or is larger."""
    queue = Queue(size, 3)
    everything: list[tuple[int, list[float]]] = []
    for number in range(7):
        z, index = step(views, samples, first=samples * number)
        queue.update(z, index)
        everything += [(index[n].item(), z[v, n].tolist()) for v in range(views) for n in range(samples)]
        found = [(i, row) for i, row in zip(queue.index.tolist(), queue.rows.tolist(), strict=True) if i >= 0]
        assert sorted(found) == sorted(everything[-size:])
        assert queue.filled.sum() == min(size, len(everything))
        if len(everything) >= size:  # the next embedding replaces the oldest
            assert queue.rows[queue.position].tolist() == everything[-size][1]


def test_empty_entries_and_the_own_image_are_not_negatives() -> None:
    queue = Queue(5, 3)
    queue.update(torch.randn(2, 2, 3), torch.tensor([8, 0]))
    expected = torch.tensor(
        [[False, True, False, True, False], [True, False, True, False, False], [True] * 4 + [False]]
    )
    assert torch.equal(queue.others(torch.tensor([8, 0, 3])), expected)


def test_centre_is_the_running_mean_of_scores() -> None:
    centre, expected = Centre(4, 0.9), torch.zeros(4, dtype=torch.float64)
    for _ in range(5):
        scores = torch.randn(2, 6, 4)
        centre.update(scores)
        expected = 0.9 * expected + 0.1 * sum(scores.double().flatten(0, 1)) / 12
    torch.testing.assert_close(centre.mean.double(), expected, rtol=1e-5, atol=1e-7)


def test_running_covariance_is_computed_per_view() -> None:
    memory = RunningCovariance(2, 3, 0.25)
    covariance, mean = [torch.eye(3).double()] * 2, [torch.zeros(3).double()] * 2
    for _ in range(4):
        z = torch.randn(2, 8, 3)
        memory.update(z)
        for v, rows in enumerate(z.double()):
            mean[v] = 0.25 * mean[v] + 0.75 * rows.mean(dim=0)
            outer = sum(torch.outer(row - mean[v], row - mean[v]) for row in rows)
            covariance[v] = 0.25 * covariance[v] + 0.75 * outer / 8
    torch.testing.assert_close(memory.covariances, torch.stack(covariance), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(memory.means, torch.stack(mean), rtol=1e-12, atol=1e-14)


def test_running_covariance_stays_in_float64() -> None:
    memory = RunningCovariance(2, 3, 0.25)
    memory.update(torch.randn(2, 8, 3))
    before = memory.covariances.clone()
    for moved in (memory.half(), memory.to(torch.bfloat16), memory.to("cpu"), nn.Sequential(memory).float()[0]):
        assert moved.covariances.dtype == moved.means.dtype == torch.float64
        assert torch.equal(moved.covariances, before)


MEMORIES: dict[str, nn.Module] = {
    "queue": Queue(7, 3),
    "centre": Centre(3, 0.9),
    "covariance": RunningCovariance(2, 3, 0.01),
    "progress": Progress(10),
}


def update_memory(memory: nn.Module, number: int) -> None:
    z = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(number))
    if isinstance(memory, Queue):
        memory.update(z, torch.arange(5) + number)
    elif isinstance(memory, Progress):
        memory.update(torch.tensor(number / 10))
    else:
        memory.update(z)


@pytest.mark.parametrize("name", MEMORIES)
def test_restored_state_continues_bit_identically(name: str) -> None:
    whole, resumed = copy.deepcopy(MEMORIES[name]), copy.deepcopy(MEMORIES[name])
    for number in range(3):
        update_memory(whole, number)
    saved = {key: value.clone() for key, value in whole.state_dict().items()}
    resumed.load_state_dict(saved)
    for number in range(3, 6):
        update_memory(whole, number)
        update_memory(resumed, number)
    assert saved.keys() == dict(whole.named_buffers()).keys()
    for key, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[key]), key
        assert not torch.equal(value, MEMORIES[name].state_dict()[key]), key


@pytest.mark.parametrize("name", MEMORIES)
def test_updates_do_not_synchronize_with_the_host(name: str) -> None:
    """Fake tensors raise an error if code reads a value or needs a shape that depends on values."""
    with FakeTensorMode():
        arguments = {"queue": (7, 3), "centre": (3, 0.9), "covariance": (2, 3, 0.1), "progress": (10,)}
        memory = type(MEMORIES[name])(*arguments[name])
        z = torch.randn(2, 5, 3)
        memory.update(*{"queue": (z, torch.arange(5)), "progress": (torch.zeros(()),)}.get(name, (z,)))


def test_momentum_rises_to_1_along_a_cosine() -> None:
    found = rising_momentum(0.9, torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64))
    torch.testing.assert_close(found, torch.tensor([0.9, 0.95, 1.0], dtype=torch.float64), rtol=1e-12, atol=0)


def test_prototypes_return_cosines_and_can_be_frozen() -> None:
    prototypes, z = Prototypes(3, 5), torch.randn(2, 4, 3, requires_grad=True)
    with torch.no_grad():
        prototypes.weight.mul_(torch.rand(5, 1) + 0.5)
    expected = nn.functional.cosine_similarity(z[..., None, :], prototypes.weight, dim=-1)
    torch.testing.assert_close(prototypes(z), expected)
    for frozen in (True, False):
        prototypes.weight.grad = None
        prototypes(z, torch.tensor(frozen)).square().sum().backward()
        assert (prototypes.weight.grad == 0).all() == frozen
    assert (z.grad != 0).any()


def test_unit_rows_are_float32_under_autocast() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rows = Unit()(torch.randn(6, 5).bfloat16())
    assert rows.dtype == torch.float32
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(6), rtol=1e-6, atol=0)
