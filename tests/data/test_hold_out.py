"""The hold-out set of data without a test set, and that none of it is used for training."""

from pathlib import Path

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import twofold
from twofold.data.hold_out import hold_out, hold_out_groups, training_rows
from twofold.data.load import load_data
from twofold.data.open import open_source

RNG = np.random.default_rng(0)


def noise(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    fraction=st.floats(0.01, 0.9),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=80)
def test_hold_out_is_stratified_and_leaves_every_class_a_training_image(
    sizes: list[int], fraction: float, seed: int
) -> None:
    order = np.random.default_rng(seed).permutation(sum(sizes))
    labels = torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes)[order])
    index = torch.arange(len(labels)) * 5
    held = hold_out(index, labels, fraction)
    for name, size in enumerate(sizes):
        count = int(held[labels == name].sum())
        assert count <= size - 1
        assert count == size - 1 or abs(count - fraction * size) < 1 + 1e-9
    if min(sizes) * (1 - fraction) >= 1:
        assert abs(int(held.sum()) - fraction * len(labels)) < 1 + 1e-9
    shuffled = torch.from_numpy(order.copy())
    assert torch.equal(hold_out(index[shuffled], labels[shuffled], fraction), held[shuffled])


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=40),
    alone=st.integers(0, 20),
    fraction=st.floats(0.01, 0.9),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=80)
def test_groups_are_held_out_as_a_whole(sizes: list[int], alone: int, fraction: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = torch.from_numpy(np.concatenate([np.repeat(np.arange(len(sizes)) * 3, sizes), np.full(alone, -1)]))
    labels = torch.from_numpy(rng.integers(0, 4, len(groups)))
    index = torch.arange(len(groups)) * 5
    held = hold_out_groups(index, labels, groups, fraction)
    for group in groups[groups >= 0].unique():
        assert len(held[groups == group].unique()) == 1
    for name in labels.unique():
        assert not held[labels == name].all()
    # Each of the four classes keeps at least one group for training, which may reduce the share further.
    assert -4 * 9 - 4.5 <= int(held.sum()) - fraction * len(groups) <= 4.5 + 1e-9
    shuffled = torch.from_numpy(rng.permutation(len(groups)))
    assert torch.equal(hold_out_groups(index[shuffled], labels[shuffled], groups[shuffled], fraction), held[shuffled])


def test_no_image_of_a_held_out_group_is_trained_on(tmp_path: Path) -> None:
    lines = ["path,label,group"]
    for number in range(60):
        Image.fromarray(noise(8, 8, 3)).save(tmp_path / f"{number:02d}.png")
        label = "" if number % 3 == 2 else "ab"[number % 2]
        lines.append(f"{number:02d}.png,{label},{f'patient {number // 6}' if number < 54 else ''}")
    (tmp_path / "list.csv").write_text("\n".join(lines))
    data = load_data(open_source(tmp_path / "list.csv"), image_size=8, channels=3, test_fraction=0.25)
    assert data.test is not None
    assert 8 <= len(data.test) <= 12
    assert (data.test.labels >= 0).all()
    known = data.test.groups[data.test.groups >= 0]
    assert set(known.tolist()).isdisjoint(data.train.groups.tolist())
    left_out = 60 - len(data.train) - len(data.test)
    assert left_out == 2 * len(known.unique()), "two images without a label in each group"
    assert data.rest is None
    whole = load_data(open_source(tmp_path / "list.csv"), image_size=8, channels=3, test_fraction=0.25, rest=True)
    assert torch.equal(whole.train.index, data.train.index)
    assert len(whole.rest) == left_out
    everything = torch.cat([whole.train.index, whole.test.index, whole.rest.index])
    assert sorted(everything.tolist()) == list(range(60))
    run = twofold.pretrain(
        tmp_path / "list.csv", out=tmp_path / "run", epochs=1, batch_size=16, projector="16,8", map_points=0,
        test_fraction=0.25,
    )  # fmt: skip
    with np.load(twofold.embed(run, tmp_path / "list.csv", tmp_path / "features.npz")) as file:
        assert file["index"].tolist() == list(range(60))
        trained = file["index"][file["split"] == "train"]
    assert trained.tolist() == sorted(data.train.index.tolist()), (
        "split must be 'train' exactly for the training images"
    )


def test_groups_without_a_readable_label_are_not_held_out(tmp_path: Path) -> None:
    for name in "abc":
        Image.fromarray(noise(8, 8, 3)).save(tmp_path / f"{name}.png")
    (tmp_path / "a.png").write_bytes(b"no image")
    (tmp_path / "list.csv").write_text("path,label,group\na.png,cat,x\nb.png,,x\nc.png,,y\n")
    data = load_data(open_source(tmp_path / "list.csv"), image_size=8, channels=3, test_fraction=0.5)
    assert (len(data.train), data.test) == (2, None)


def test_hold_out_does_not_depend_on_the_order_of_the_images() -> None:
    labels = torch.arange(4000) % 2
    held = hold_out(torch.arange(4000), labels, 0.25)
    assert int(held.sum()) == 1000
    quarters = held.reshape(4, 1000).sum(1)
    assert ((quarters - 250).abs() < 60).all()
    neighbours = (held[2::2] & held[:-2:2]).float().mean()
    assert abs(float(neighbours) - 0.0625) < 0.03


def test_classes_of_one_image_stay_in_training() -> None:
    data = load_data(open_source((noise(6, 8, 8), list("aabbbc"))), image_size=8, channels=1, test_fraction=0.9)
    assert set(data.train.labels.tolist()) == {0, 1, 2}
    assert 2 not in data.test.labels


def test_number_of_training_images_is_known_before_decoding(photos: Path) -> None:
    for data, fraction in (
        (photos, 0.0),
        (photos, 0.3),
        (noise(9, 8, 8), 0.5),
        ((noise(9, 8, 8), list("abcabcabc")), 0.5),
    ):
        source = open_source(data)
        loaded = load_data(source, image_size=8, channels=1, test_fraction=fraction)
        assert len(training_rows(source, fraction)) == len(loaded.train)
