"""Views: which operations apply to which channels, and that a view depends only on (seed, step, position, view)."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch._subclasses.fake_tensor import FakeTensorMode

from augmenting import EVERYTHING, NOTHING, at, augmenter, images_of, only
from twofold import counter
from twofold.data import colour, resample
from twofold.data.eval_transform import EvalTransform

CASES = {
    "everything": (EVERYTHING, (23, 3, 20, 26), 16),
    "everything, grey": (EVERYTHING, (23, 1, 8, 8), 8),
    "everything, four channels": (EVERYTHING, (23, 4, 12, 9), 8),
    "everything, six channels, three of them augmented separately": (
        dataclasses.replace(EVERYTHING, extra_scale=(0.5, 1), extra_blur=0.5),
        (23, 6, 12, 9),
        8,
    ),
    "everything, bicubic": (dataclasses.replace(EVERYTHING, interpolation="bicubic"), (23, 3, 20, 26), 16),
    "no crop": (dataclasses.replace(EVERYTHING, crop_scale=(1, 1), crop_ratio=(1, 1)), (23, 3, 20, 26), 16),
}


@pytest.mark.parametrize("case", CASES)
def test_view_does_not_depend_on_the_rest_of_the_batch(case: str) -> None:
    augment, shape, size = CASES[case]
    views = augmenter(augment, shape[1], size)
    images, position = images_of(*shape), torch.arange(shape[0]) + 1000
    whole = views(images, position, at(5))
    assert whole.shape == (2, shape[0], shape[1], size, size)
    assert whole.dtype == torch.float32
    for sizes in ([1, 22], [7, 16], [11, 11, 1]):
        parts = zip(images.split(sizes), position.split(sizes), strict=True)
        assert torch.equal(torch.cat([views(*part, at(5)) for part in parts], dim=1), whole)
    order = torch.randperm(shape[0], generator=torch.Generator().manual_seed(0))
    assert torch.equal(views(images[order], position[order], at(5)), whole[:, order])


@pytest.mark.parametrize(
    "changes",
    [
        {"crop_scale": (0.2, 1.0)},
        {"rotate": 30.0},
        {"shear": 30.0},
        {"shift": 0.2},
        {"scale": (0.5, 2.0)},
        {"jitter": 1.0},
        {"blur": 1.0},
        {"noise": 0.1},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_seed_step_position_and_view_each_change_the_view(changes: dict[str, Any]) -> None:
    augment = only(**changes)
    images = images_of(1, 3, 64, 64).expand(4, -1, -1, -1)
    views = augmenter(augment).pixels(images, torch.arange(4), at(0))
    others = [
        augmenter(augment).pixels(images, torch.arange(4), at(1)),
        augmenter(augment, seed=1).pixels(images, torch.arange(4), at(0)),
        augmenter(augment).pixels(images, torch.arange(4) + 4, at(0)),
    ]
    assert torch.equal(augmenter(augment).pixels(images, torch.arange(4), at(0)), views)
    distinct = torch.cat([views, *others]).flatten(0, 1).flatten(1)
    assert len(distinct.unique(dim=0)) == 4 * 2 * 4


def test_disabled_operations_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("this is off")

    for module, names in {
        colour: ("jitter", "grayscale", "solarize"),
        resample: ("affine", "blur", "separable", "axis_weights"),
        counter: ("key", "normal", "uniform"),
    }.items():
        for name in names:
            monkeypatch.setattr(module, name, refuse)
    images = images_of(5, 3, 8, 8)
    for off in (NOTHING, only(jitter=1.0, brightness=0, contrast=0, saturation=0, hue=0), only(flip=(0.0, 0.0))):
        views = augmenter(off).pixels(images, torch.arange(5), at(0))
        assert torch.equal(views, (images / 255).expand(2, -1, -1, -1, -1))


def test_bicubic_crops_are_sharper_and_stay_between_0_and_1() -> None:
    images = images_of(50, 3, 16, 16)
    smooth, sharp = (
        augmenter(only(crop_scale=(0.2, 0.6), interpolation=kernel), size=16).pixels(images, torch.arange(50), at(0))
        for kernel in ("bilinear", "bicubic")
    )
    assert (sharp.min(), sharp.max()) == (0, 1)  # values outside are clipped
    assert sharp.var() > 1.1 * smooth.var()
    assert float(np.corrcoef(sharp.flatten().numpy(), smooth.flatten().numpy())[0, 1]) > 0.95  # the same crops


@pytest.mark.parametrize("channels", [1, 2])
def test_images_with_one_or_two_channels_get_no_colour_changes(channels: int) -> None:
    images = images_of(5, channels, 8, 8)
    views = augmenter(only(jitter=1.0, brightness=0, contrast=0, grayscale=1.0), channels)
    assert views.drawn == []
    assert torch.equal(views.pixels(images, torch.arange(5), at(0))[1], images / 255)


def test_colour_changes_apply_to_the_first_three_channels() -> None:
    augment = only(jitter=1.0, saturation=0.8, hue=0.2, grayscale=0.5, solarize=0.5)
    images = images_of(5, 5, 8, 8)
    views = augmenter(augment, 5).pixels(images, torch.arange(5), at(0))
    coloured = augmenter(augment, 3).pixels(images[:, :3], torch.arange(5), at(0))
    assert torch.equal(views[:, :, :3], coloured)
    assert torch.equal(views[:, :, 3:], (images[:, 3:] / 255).expand(2, -1, -1, -1, -1))
    assert not torch.equal(coloured, (images[:, :3] / 255).expand_as(coloured))


def test_crop_flip_and_blur_are_the_same_for_all_channels() -> None:
    augment = only(crop_scale=(0.2, 1.0), flip=0.5, rotate=20, blur=0.5)
    image = images_of(6, 1, 12, 12)
    views = augmenter(augment, 4).pixels(image.expand(-1, 4, -1, -1), torch.arange(6), at(0))
    torch.testing.assert_close(views, views[:, :, :1].expand_as(views))


def test_channels_after_the_third_can_be_augmented_separately() -> None:
    """Equal channels show the differences: own crops in their range, no flips, and blur with the given probability."""
    n = 500
    shared = only(crop_scale=(0.08, 0.3), flip=1.0, grayscale=1.0)
    separate = dataclasses.replace(shared, extra_scale=(0.75, 1.0))
    ramp = torch.linspace(0, 255, 32).to(torch.uint8).expand(n, 5, 32, 32)  # brighter to the right
    views = augmenter(separate, 5, size=32).pixels(ramp, torch.arange(n), at(0))
    assert torch.equal(views[:, :, :3], augmenter(shared, 3, size=32).pixels(ramp[:, :3], torch.arange(n), at(0)))
    rise = (views[..., 0, -1] - views[..., 0, 0]).flatten(0, 1)  # the width of the crop; negative if it is flipped
    assert (rise[:, :3] < 0).all()
    assert (rise[:, 3:] > 0.7).all()
    assert torch.equal(rise[:, 3], rise[:, 4])
    correlation = np.corrcoef(rise[:, 0].numpy(), rise[:, 3].numpy())[0, 1]
    assert abs(correlation) < 4 / math.sqrt(2 * n)

    dots = torch.zeros(n, 4, 32, 32, dtype=torch.uint8)
    dots[..., 16, 16] = 255
    blurring = only(extra_scale=(1.0, 1.0), extra_blur=0.25, blur_sigma=(1.0, 1.0))
    peaks = augmenter(blurring, 4, size=32).pixels(dots, torch.arange(n), at(0)).amax(dim=(-2, -1))
    assert (peaks[..., :3] == 1).all()
    blurred = (peaks[..., 3] < 0.5).double().mean().item()
    assert abs(blurred - 0.25) < 4 * math.sqrt(0.25 * 0.75 / (2 * n))


def test_augmentation_does_not_synchronize_with_the_host() -> None:
    """Fake tensors have shapes but no values: `.item()` or a branch on a value would raise an error."""
    views, images = augmenter(EVERYTHING), images_of(3, 3, 9, 12)
    with FakeTensorMode(allow_non_fake_inputs=True) as fake:
        result = views(*(fake.from_tensor(tensor) for tensor in (images, torch.arange(3), at(4))))
        assert result.shape == (2, 3, 3, 8, 8)
        assert views.eval_transform(fake.from_tensor(images)).shape == (3, 3, 8, 8)


@pytest.mark.parametrize("channels", [1, 3, 5])
def test_views_for_a_cpu_are_bit_identical(channels: int) -> None:
    augment = dataclasses.replace(EVERYTHING, extra_scale=(0.5, 1), extra_blur=0.5) if channels == 5 else EVERYTHING
    for n in (1, 2, 40):  # among them are batches in which no view is blurred
        images = images_of(n, channels, 9, 12)
        arguments = images, torch.arange(n), at(4)
        expected = augmenter(augment, channels=channels).pixels(*arguments)
        assert torch.equal(augmenter(augment, channels=channels).for_cpu().pixels(*arguments), expected)


def test_augmentation_compiles_to_a_single_graph() -> None:
    views, images = augmenter(EVERYTHING), images_of(3, 3, 9, 12)
    compiled = torch.compile(views.__call__, backend="eager", fullgraph=True)
    assert torch.equal(compiled(images, torch.arange(3), at(4)), views(images, torch.arange(3), at(4)))


def test_operations_are_applied_in_the_documented_order(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    for module, names in {
        resample: ("separable", "affine", "blur"),
        colour: ("jitter", "grayscale", "solarize"),
        counter: ("normal",),
    }.items():
        for name in names:
            original = getattr(module, name)
            monkeypatch.setattr(
                module, name, lambda *a, _name=name, _original=original: (order.append(_name), _original(*a))[1]
            )
    augmenter(EVERYTHING).pixels(images_of(3, 3, 9, 9), torch.arange(3), at(0))
    assert order == ["separable", "affine", "jitter", "grayscale", "blur", "separable", "solarize", "normal"]


def test_pixels_stay_between_0_and_1_and_views_are_normalized_pixels() -> None:
    views = augmenter(EVERYTHING, size=16)
    images = images_of(40, 3, 20, 26)
    images[:10], images[10:20] = 0, 255
    pixels = views.pixels(images, torch.arange(40), at(1))
    assert pixels.min() == 0
    assert pixels.max() == 1
    mean, std = np.linspace(0.3, 0.6, 3).reshape(3, 1, 1), np.linspace(0.2, 0.3, 3).reshape(3, 1, 1)
    expected = (pixels.double().numpy() - mean) / std
    np.testing.assert_allclose(views(images, torch.arange(40), at(1)).numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("height, width, size", [(16, 16, 16), (30, 21, 12), (7, 9, 16)])
def test_eval_transform_resizes_and_normalizes_the_whole_image(height: int, width: int, size: int) -> None:
    images = images_of(4, 3, height, width)
    plain = augmenter(EVERYTHING, size=size).eval_transform
    mean, std = np.linspace(0.3, 0.6, 3).reshape(3, 1, 1), np.linspace(0.2, 0.3, 3).reshape(3, 1, 1)
    for image, ours in zip(images, plain(images), strict=True):
        channels = [Image.fromarray(channel.astype(np.float32)) for channel in image.numpy()]
        resized = [np.asarray(channel.resize((size, size), Image.Resampling.BILINEAR)) for channel in channels]
        np.testing.assert_allclose(ours.numpy(), (np.stack(resized) / 255 - mean) / std, atol=1e-4)
    assert torch.equal(plain(images), plain(images))
    assert torch.equal(torch.cat([plain(images[:1]), plain(images[1:])]), plain(images))


def test_moving_to_a_device_changes_no_view() -> None:
    views = augmenter(EVERYTHING, views=2, seed=3)
    moved = views.to("meta")
    assert {moved.eval_transform.mean.device.type, moved.view.device.type, moved.purpose.device.type} == {"meta"}
    images = images_of(4, 3, 8, 8)
    assert torch.equal(views.to("cpu")(images, torch.arange(4), at(0)), views(images, torch.arange(4), at(0)))
    plain = EvalTransform(8, torch.full((3,), 0.5), torch.full((3,), 0.25))
    assert torch.equal(plain.to("cpu")(images), plain(images))


def test_small_crops_are_additional_views() -> None:
    """They have their own size and scale. Their draws follow those of the other views, which do not change."""
    images, position = images_of(6, 3, 20, 26), torch.arange(6)
    whole = augmenter(EVERYTHING, size=8, views=5)
    multi = augmenter(
        dataclasses.replace(EVERYTHING, local_views=2, local_scale=EVERYTHING.crop_scale), size=8, views=3
    )
    expected = whole(images, position, at(3))
    assert torch.equal(multi(images, position, at(3)), expected[:3])
    same_size = augmenter(dataclasses.replace(multi.augment, local_size=8), size=8, views=3).small_crops()
    for small in (same_size, same_size.to("cpu")):
        torch.testing.assert_close(small(images, position, at(3)), expected[3:])
    assert multi.small_crops()(images, position, at(3)).shape == (2, 6, 3, 4, 4)
    assert whole.small_crops() is None


def test_small_crops_show_a_small_part_of_the_image() -> None:
    """On a ramp from left to right, a crop of 1 to 4 % of the area (ratio 1) covers at most a fifth of the values."""
    ramp = torch.arange(200, dtype=torch.uint8).expand(50, 1, 200, 200)
    small = augmenter(only(local_views=3, local_scale=(0.01, 0.04), local_size=10), channels=1, size=20).small_crops()
    shown = small.pixels(ramp, torch.arange(50), at(0)) * 255
    width = (shown.amax(dim=(2, 3, 4)) - shown.amin(dim=(2, 3, 4))) * 10 / 9
    assert width.min() > 15
    assert width.max() < 42
