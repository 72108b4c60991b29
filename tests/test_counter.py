"""Random draws compared with splitmix64 in Python's unbounded integers, and with their distributions."""

import hashlib
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from twofold import counter

MODULUS = 2**64


def finalise(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % MODULUS
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % MODULUS
    return x ^ (x >> 31)


def reference_key(*parts: int | str) -> int:
    state = 0x9E3779B97F4A7C15
    for part in parts:
        if isinstance(part, str):
            part = int.from_bytes(hashlib.blake2b(part.encode(), digest_size=8).digest(), "little")
        state = finalise(state ^ (part * 0x9E3779B97F4A7C15 % MODULUS))
    return state


def unsigned(keys: torch.Tensor) -> list[int]:
    return [value % MODULUS for value in keys.flatten().tolist()]


def test_mixing_function_gives_the_published_stream_of_splitmix64() -> None:
    stream = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    states = torch.tensor([(k * 0x9E3779B97F4A7C15 + 2**63) % MODULUS - 2**63 for k in range(1, 5)])
    assert unsigned(counter._mix(states)) == stream


def test_leading_zeros_change_the_key() -> None:
    keys = [counter.key(*[0] * zeros, "x").item() for zeros in range(5)]
    assert len(set(keys)) == 5


@settings(max_examples=200)
@given(st.lists(st.integers(-(2**63), 2**64 - 1) | st.text(max_size=12), max_size=6))
def test_key_equals_big_integer_arithmetic(parts: list[int | str]) -> None:
    expected = reference_key(*parts)
    assert unsigned(counter.key(*parts)) == [expected]
    as_tensors = [torch.tensor((p + 2**63) % MODULUS - 2**63) if isinstance(p, int) else p for p in parts]
    assert unsigned(counter.key(*as_tensors)) == [expected]


def test_keys_can_be_extended() -> None:
    position, view = torch.arange(3), torch.arange(2)[:, None]
    shared = counter.key(3, position, view)
    before = shared.clone()
    assert torch.equal(counter.extend(shared, "noise", torch.tensor(5)), counter.key(3, position, view, "noise", 5))
    assert torch.equal(counter.extend(shared), before)


def test_purpose_is_the_same_in_every_process() -> None:
    # Python's hash of a string differs between processes. These numbers must not, because results of a seed depend on
    # them.
    assert counter.purpose("augment.flip") == reference_purpose("augment.flip")
    assert counter.purpose("") == reference_purpose("")
    names = ["flip", "flip ", "Flip", "augment.flip", "augment.crop.top", "augment.crop.left"]
    assert len({counter.purpose(name) for name in names}) == len(names)


def reference_purpose(name: str) -> int:
    return int(np.frombuffer(hashlib.blake2b(name.encode(), digest_size=8).digest(), dtype="<i8")[0])


def test_tensors_broadcast_to_one_key_per_element() -> None:
    position, view, purpose = (
        torch.tensor([0, 5, 2**40]),
        torch.arange(2)[:, None],
        torch.tensor([7, -7])[:, None, None],
    )
    keys = counter.key(3, torch.tensor(11), position, view, purpose)
    assert keys.shape == (2, 2, 3)
    assert keys.dtype == torch.int64
    places = itertools.product([7, -7], [0, 1], [0, 5, 2**40])
    assert unsigned(keys) == [reference_key(3, 11, at, v, why) for why, v, at in places]


def test_keys_do_not_depend_on_the_split_or_order_of_the_batch() -> None:
    position = torch.arange(101)
    whole = counter.normal(counter.key(0, 9, position, "noise"))
    parts = [counter.normal(counter.key(0, 9, part, "noise")) for part in position.split([1, 40, 60])]
    assert torch.equal(torch.cat(parts), whole)
    shuffled = torch.randperm(101, generator=torch.Generator().manual_seed(0))
    assert torch.equal(counter.normal(counter.key(0, 9, position[shuffled], "noise")), whole[shuffled])


def test_keys_depend_on_every_part_and_its_position() -> None:
    places = list(itertools.product(range(4), repeat=4))
    assert len({int(counter.key(*place, "x")) for place in places}) == len(places)


def test_one_changed_bit_changes_half_of_the_bits() -> None:
    base = torch.arange(500) * 977
    plain = counter.key(1, base, 2)
    for bit in range(63):
        changed = counter.key(1, base ^ (1 << bit), 2) ^ plain
        ones = np.array([value.bit_count() for value in unsigned(changed)])
        # The sum of 64 fair bits has mean 32 and standard deviation 4; the mean of 500 sums has 4/sqrt(500).
        assert abs(ones.mean() - 32) < 5 * 4 / math.sqrt(500)


def test_uniform_uses_the_24_highest_bits() -> None:
    keys = torch.tensor([0, -1, 1 << 40, (1 << 40) - 1, -(2**63)])
    assert counter.uniform(keys).dtype == torch.float32
    assert counter.uniform(keys).tolist() == [0.0, 1 - 2**-24, 2**-24, 0.0, 0.5]
    low, high = torch.tensor([0.0, 1.0]), torch.tensor([2.0, 5.0])
    assert counter.uniform(torch.tensor([-(2**63)]), low, high).tolist() == [1.0, 3.0]


AXES = {
    "position": lambda n, k: counter.key(0, k, torch.arange(n), 0, "augment.flip"),
    "step": lambda n, k: counter.key(0, torch.arange(n), k, 0, "augment.flip"),
    "seed": lambda n, k: counter.key(torch.arange(n), k, 3, 0, "augment.flip"),
    "grid": lambda n, k: counter.key(k, torch.arange(n // 100)[:, None], torch.arange(100), "x").flatten(),
}


@pytest.mark.parametrize("axis", AXES)
def test_draws_along_an_axis_are_uniform_and_independent(axis: str) -> None:
    n, repeats = 10_000, 40
    p_values: dict[str, list[float]] = {"uniform": [], "pairs": []}
    for k in range(repeats):
        u = counter.uniform(AXES[axis](n, k)).double().numpy()
        p_values["uniform"].append(stats.kstest(u, "uniform").pvalue)
        for lag in (1, 2, 100):
            assert abs(np.corrcoef(u[:-lag], u[lag:])[0, 1]) < 5 / math.sqrt(n)
        # Pairs of neighbours must fill the square evenly. Correlation alone would not detect a lattice.
        cells = np.histogram2d(u[0::2], u[1::2], bins=16, range=[[0, 1], [0, 1]])[0]
        p_values["pairs"].append(stats.chisquare(cells.ravel()).pvalue)
    # A single p-value may be small by chance, but the p-values of independent draws are uniform.
    for values in p_values.values():
        assert stats.kstest(values, "uniform").pvalue > 1e-3
        assert min(values) > 1e-6


def test_draws_for_different_purposes_and_views_are_independent() -> None:
    n = 40_000
    position = torch.arange(n)
    draws = [
        counter.uniform(counter.key(0, 3, position, view, name)).double().numpy()
        for view in (0, 1)
        for name in ("augment.crop.top", "augment.crop.left", "augment.flip")
    ]
    correlation = np.corrcoef(draws) - np.eye(len(draws))
    assert abs(correlation).max() < 4 / math.sqrt(n)


@pytest.mark.parametrize("axis", AXES)
def test_normal_draws_are_normal(axis: str) -> None:
    n = 40_000
    keys = AXES[axis](n, 5)
    x = counter.normal(keys)
    assert x.dtype == torch.float32
    assert stats.kstest(x.double().numpy(), "norm").pvalue > 1e-3
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 4 / math.sqrt(n)
    assert abs(x.double().numpy().var() - 1) < 4 * math.sqrt(2 / n)


def test_normal_equals_box_muller_and_is_finite_for_extreme_keys() -> None:
    keys = torch.tensor([0, -1, 2**63 - 1, -(2**63), (3 << 40) + (5 << 16)])
    x = counter.normal(keys)
    assert torch.isfinite(x).all()
    high = [((key % MODULUS) >> 40) + 1 for key in keys.tolist()]
    low = [((key % MODULUS) >> 16) % 2**24 for key in keys.tolist()]
    expected = [
        math.sqrt(-2 * math.log(r / 2**24)) * math.cos(2 * math.pi * a / 2**24) for r, a in zip(high, low, strict=True)
    ]
    np.testing.assert_allclose(x.numpy(), expected, atol=1e-5)


def test_permutations_are_valid_and_uniformly_distributed() -> None:
    assert sorted(counter.permutation(counter.key(0, torch.arange(1000), "order")).tolist()) == list(range(1000))
    assert counter.permutation(torch.tensor([5, -1, 5, -1])).tolist() == [1, 3, 0, 2]
    orders = [
        tuple(counter.permutation(counter.key(0, epoch, torch.arange(3), "order")).tolist()) for epoch in range(3000)
    ]
    counts = [orders.count(order) for order in itertools.permutations(range(3))]
    assert sum(counts) == 3000
    assert stats.chisquare(counts).pvalue > 1e-3
