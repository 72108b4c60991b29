"""Geometric operations compared with Pillow, SciPy and float64 formulas."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy import ndimage
from torch import Tensor

from twofold.data import resample

Box = tuple[float, float, float, float]  # left, top, right, bottom

# (height, width, side of the result, box)
RESIZES: list[tuple[int, int, int, Box]] = [
    (32, 32, 32, (3, 5, 21, 30)),  # enlarged
    (8, 8, 8, (2, 1, 4, 4)),  # much enlarged
    (64, 48, 16, (0, 0, 48, 64)),  # the whole image, reduced
    (100, 40, 12, (1, 7, 39, 95)),  # reduced, not square
    (20, 60, 30, (4, 3, 58, 17)),  # reduced in one direction, enlarged in the other
    (20, 60, 30, (4.25, 3.5, 57.75, 16.125)),  # fractions of pixels
    (9, 7, 5, (6, 8, 7, 9)),  # one pixel in the corner
]


def noise_image(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8))


PILLOW = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def resized(image: Tensor, box: Box, side: int, mirror: bool = False, kernel: str = "bilinear") -> Tensor:
    left, top, right, bottom = (torch.tensor([[value]], dtype=torch.float32) for value in box)
    if mirror:
        left, right = right, left
    rows = resample.axis_weights(top, bottom, image.shape[1], side, kernel)
    columns = resample.axis_weights(left, right, image.shape[2], side, kernel)
    return resample.separable(image[None], rows, columns)[0, 0]


def pillow_resized(channel: Tensor, box: Box, side: int, kernel: str = "bilinear") -> np.ndarray:
    """Resize a float image, so that Pillow does not round to integers."""
    image = Image.fromarray(channel.numpy().astype(np.float32))
    return np.asarray(image.resize((side, side), PILLOW[kernel], box=box))


@pytest.mark.parametrize("kernel", PILLOW)
@pytest.mark.parametrize("height, width, side, box", RESIZES)
def test_resize_equals_pillow(height: int, width: int, side: int, box: Box, kernel: str) -> None:
    image = noise_image(3, height, width)
    expected = np.stack([pillow_resized(channel, box, side, kernel) for channel in image])
    np.testing.assert_allclose(resized(image, box, side, kernel=kernel).numpy() / 255, expected / 255, atol=1e-5)


@pytest.mark.parametrize("height, width, side, box", RESIZES)
def test_resize_equals_pillow_on_uint8_up_to_rounding(height: int, width: int, side: int, box: Box) -> None:
    image = noise_image(height, width, 3)
    expected = np.asarray(Image.fromarray(image.numpy()).resize((side, side), Image.Resampling.BILINEAR, box=box))
    ours = resized(image.permute(2, 0, 1), box, side).permute(1, 2, 0).numpy()
    # Pillow rounds to integers after the columns and again after the rows, and its weights are fixed-point numbers.
    assert np.abs(ours - expected).max() <= 1.05


@pytest.mark.parametrize("height, width, side, box", RESIZES)
def test_mirrored_resize_equals_pillow(height: int, width: int, side: int, box: Box) -> None:
    image = noise_image(1, height, width)
    expected = pillow_resized(image[0], box, side)[:, ::-1]
    np.testing.assert_allclose(resized(image, box, side, mirror=True)[0].numpy() / 255, expected / 255, atol=1e-5)


def triangle_formula(first: float, last: float, size: int, out: int) -> np.ndarray:
    scale = (last - first) / out
    support = max(scale, 1.0)
    weights = np.zeros((out, size))
    for o in range(out):
        centre = first + (o + 0.5) * scale
        for x in range(size):
            weights[o, x] = max(0.0, 1 - abs(x + 0.5 - centre) / support)
        weights[o] /= weights[o].sum()
    return weights


@settings(max_examples=60)
@given(st.data())
def test_weights_equal_the_formula_in_float64(data: st.DataObject) -> None:
    size, out = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40))
    length = data.draw(st.integers(1, size))
    first = data.draw(st.integers(0, size - length))
    weights = resample.axis_weights(torch.tensor([float(first)]), torch.tensor([float(first + length)]), size, out)
    np.testing.assert_allclose(weights[0].numpy(), triangle_formula(first, first + length, size, out), atol=1e-5)


def test_crop_at_full_resolution_is_exact() -> None:
    image = noise_image(2, 20, 24)
    crop = image[:, 3:19, 5:21].float()
    for kernel in PILLOW:
        assert torch.equal(resized(image, (5, 3, 21, 19), 16, kernel=kernel), crop)
        assert torch.equal(resized(image, (5, 3, 21, 19), 16, mirror=True, kernel=kernel), crop.flip(-1))


def test_separable_gives_each_view_of_each_image_its_own_matrices() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(3, 2, 6, 7, generator=generator)
    rows, columns = torch.rand(3, 4, 5, 6, generator=generator), torch.rand(3, 4, 5, 7, generator=generator)
    expected = torch.einsum("nvsh,nchw,nvtw->vncst", rows.double(), images.double(), columns.double())
    result = resample.separable(images, rows, columns)
    assert result.dtype == torch.float32
    np.testing.assert_allclose(result.numpy(), expected.numpy(), rtol=1e-5)


def test_separable_keeps_its_precision_under_autocast() -> None:
    images, weights = noise_image(2, 3, 8, 8), torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    expected = resample.separable(images, weights, weights)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(resample.separable(images, weights, weights), expected)


@pytest.mark.parametrize("height, width, side", [(32, 32, 32), (50, 30, 16), (9, 13, 24)])
def test_resize_of_the_whole_image_equals_pillow(height: int, width: int, side: int) -> None:
    images = noise_image(2, 3, height, width)
    expected = [[pillow_resized(channel, (0, 0, width, height), side) for channel in image] for image in images]
    np.testing.assert_allclose(resample.resize(images, side).numpy() / 255, np.array(expected) / 255, atol=1e-5)


def torchvision_crop(
    draws: dict[str, np.ndarray], height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> tuple[int, int, int, int]:
    """RandomResizedCrop for given draws, written with loops in float64."""
    for area_draw, ratio_draw in zip(draws["area"], draws["ratio"], strict=True):
        area = height * width * (scale[0] + (scale[1] - scale[0]) * area_draw)
        aspect = math.exp(math.log(ratio[0]) + (math.log(ratio[1]) - math.log(ratio[0])) * ratio_draw)
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return int(draws["top"] * (height - h + 1)), int(draws["left"] * (width - w + 1)), h, w
    if width / height < ratio[0]:
        w, h = width, round(width / ratio[0])
    elif width / height > ratio[1]:
        w, h = round(height * ratio[1]), height
    else:
        w, h = width, height
    return (height - h) // 2, (width - w) // 2, h, w


@pytest.mark.parametrize(
    "height, width, scale, ratio",
    [
        (32, 32, (0.2, 1.0), (3 / 4, 4 / 3)),
        (96, 50, (0.08, 1.0), (3 / 4, 4 / 3)),
        (20, 200, (0.5, 1.0), (3 / 4, 4 / 3)),  # no draw fits, wide image
        (200, 21, (0.6, 1.0), (3 / 4, 4 / 3)),  # no draw fits, tall image
        (40, 30, (1.0, 1.0), (0.5, 1.0)),  # draws rarely fit, and the whole image is allowed
        (8, 8, (0.01, 0.3), (1.0, 1.0)),  # small areas round to zero pixels
    ],
)
def test_crop_boxes_equal_random_resized_crop_written_as_loops(
    height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> None:
    count = 400
    integers = np.random.default_rng(1).integers(0, 2**24, (22, count))
    draws = torch.from_numpy(integers).float() * 2.0**-24
    boxes = resample.crop_boxes(
        draws[:10], draws[10:20], draws[20], draws[21], size=(height, width), scale=scale, ratios=ratio
    )
    u = integers / 2**24
    expected = [
        torchvision_crop(
            {"area": u[:10, k], "ratio": u[10:20, k], "top": u[20, k], "left": u[21, k]}, height, width, scale, ratio
        )
        for k in range(count)
    ]
    assert torch.stack(boxes, dim=1).tolist() == [list(box) for box in expected]


@settings(max_examples=100)
@given(
    st.integers(1, 300),
    st.integers(1, 300),
    st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)).map(sorted),
    st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)).map(sorted),
)
def test_crops_lie_inside_the_image(height: int, width: int, scale: list[float], ratio: list[float]) -> None:
    ends = torch.tensor([0.0, 0.5, 1 - 2**-24])
    draws = torch.cartesian_prod(ends, ends, ends, ends).T
    boxes = resample.crop_boxes(
        draws[:1], draws[1:2], draws[2], draws[3],
        size=(height, width), scale=(scale[0], scale[1]), ratios=(ratio[0], ratio[1]),
    )  # fmt: skip
    top, left, crop_height, crop_width = boxes
    assert all(torch.equal(value, value.round()) for value in boxes)
    assert (torch.stack([crop_height, crop_width]) >= 1).all()
    assert (torch.stack([top, left]) >= 0).all()
    assert (top + crop_height <= height).all()
    assert (left + crop_width <= width).all()


def moved(
    image: Tensor, degrees: float = 0, shear: float = 0, zoom: float = 1, right: float = 0, down: float = 0
) -> Tensor:
    parameters = (torch.tensor([float(value)]) for value in (degrees, shear, zoom, right, down))
    return resample.affine(image[None], *parameters)[0]


def inverse_matrix(side: int, degrees: float, shear: float, zoom: float, right: float, down: float) -> np.ndarray:
    """The map from positions in the result to positions in the image, in pixels, by matrix inversion."""
    centre = np.array([[1, 0, side / 2], [0, 1, side / 2], [0, 0, 1]])
    enlarge = np.diag([zoom, zoom, 1])
    slant = np.array([[1, math.tan(math.radians(shear)), 0], [0, 1, 0], [0, 0, 1]])
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    turn = np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]])  # counter-clockwise as displayed, because y points down
    shift = np.array([[1, 0, right * side], [0, 1, down * side], [0, 0, 1]])
    return np.linalg.inv(shift @ centre @ turn @ slant @ enlarge @ np.linalg.inv(centre))


MOVES = [
    {"degrees": 30, "shear": 0, "zoom": 1, "right": 0, "down": 0},
    {"degrees": -100, "shear": 0, "zoom": 1.3, "right": 0.1, "down": -0.05},
    {"degrees": 0, "shear": 20, "zoom": 1, "right": 0, "down": 0},
    {"degrees": 15, "shear": -35, "zoom": 0.8, "right": -0.13, "down": 0.21},
]


@pytest.mark.parametrize("move", MOVES)
def test_affine_equals_the_formula_in_float64(move: dict[str, float]) -> None:
    side = 17
    image = torch.rand(2, side, side, generator=torch.Generator().manual_seed(0))
    padded = np.pad(image.double().numpy(), ((0, 0), (1, 1), (1, 1)))  # black outside
    matrix = inverse_matrix(side, **move)
    expected = np.zeros((2, side, side))
    for i in range(side):
        for j in range(side):
            x, y, _ = matrix @ [j + 0.5, i + 0.5, 1]
            x, y = x - 0.5, y - 0.5
            left, top = math.floor(x), math.floor(y)
            for column, row, weight in [
                (left, top, (left + 1 - x) * (top + 1 - y)),
                (left + 1, top, (x - left) * (top + 1 - y)),
                (left, top + 1, (left + 1 - x) * (y - top)),
                (left + 1, top + 1, (x - left) * (y - top)),
            ]:
                if -1 <= column <= side and -1 <= row <= side:
                    expected[:, i, j] += weight * padded[:, row + 1, column + 1]
    np.testing.assert_allclose(moved(image, **move).numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("move", MOVES)
def test_affine_equals_pillow_inside_the_image(move: dict[str, float]) -> None:
    side = 32
    image = torch.rand(side, side, generator=torch.Generator().manual_seed(0))
    data = inverse_matrix(side, **move)[:2].ravel().tolist()
    pillow = Image.fromarray(image.numpy())
    expected = np.asarray(pillow.transform((side, side), Image.Transform.AFFINE, data, Image.Resampling.BILINEAR))
    # Pillow repeats the edge for half a pixel and we fade to black: compare where all four neighbours are inside.
    inside = moved(torch.ones(1, side, side), **move)[0] > 1 - 1e-5
    assert inside.float().mean() > 0.3
    ours = moved(image[None], **move)[0]
    np.testing.assert_allclose(ours[inside].numpy(), expected[inside.numpy()], atol=1e-4)


@pytest.mark.parametrize("side", [8, 9, 32])
@pytest.mark.parametrize("quarters", [-2, -1, 0, 1, 2])
def test_quarter_turns_are_exact_rotations(side: int, quarters: int) -> None:
    image = torch.rand(3, side, side, generator=torch.Generator().manual_seed(0))
    expected = np.rot90(image.numpy(), quarters, axes=(1, 2))
    np.testing.assert_allclose(moved(image, degrees=90 * quarters).numpy(), expected, atol=1e-5)


def test_shifts_by_whole_pixels_are_filled_with_black() -> None:
    image = torch.rand(1, 10, 10, generator=torch.Generator().manual_seed(0))
    expected = torch.zeros(1, 10, 10)
    expected[:, 2:, :7] = image[:, :8, 3:]
    np.testing.assert_allclose(moved(image, right=-0.3, down=0.2).numpy(), expected.numpy(), atol=1e-5)


def test_affine_parameters_apply_to_their_own_sample() -> None:
    images = torch.rand(4, 1, 11, 11, generator=torch.Generator().manual_seed(0))
    columns = torch.tensor([list(move.values()) for move in MOVES], dtype=torch.float32).unbind(1)
    batched = resample.affine(images, *columns)
    one_by_one = torch.stack([moved(image, **move) for image, move in zip(images, MOVES, strict=True)])
    np.testing.assert_allclose(batched.numpy(), one_by_one.numpy(), atol=1e-6)


@pytest.mark.parametrize("side, largest", [(8, 2.0), (8, 0.5), (32, 2.0), (33, 3.3), (5, 20.0), (1, 1.0), (2, 1.0)])
def test_blur_equals_scipy(side: int, largest: float) -> None:
    sigmas = [0.1, 0.2 * largest, 0.6 * largest, largest]
    images = torch.rand(len(sigmas), 2, side, side, generator=torch.Generator().manual_seed(0))
    radius = min(math.ceil(4 * largest), side - 1)
    expected = images.double().numpy()
    for sample, sigma in enumerate(sigmas):
        for axis in (1, 2):
            expected[sample] = ndimage.gaussian_filter1d(
                expected[sample], sigma, axis=axis, mode="mirror", radius=radius
            )
    ours = resample.blur(images, torch.tensor(sigmas), largest)
    np.testing.assert_allclose(ours.numpy(), expected, atol=1e-5)
