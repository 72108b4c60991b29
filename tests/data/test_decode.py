import io
import os
import struct
import subprocess
import sys
import time
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from twofold.data import decode, limited_files
from twofold.data.decode import crop_and_resize, decode_image, read_header
from twofold.data.decode_options import DecodeOptions, Unreadable
from twofold.data.image_formats import extensions

RNG = np.random.default_rng(0)


def noise(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def saved(path: Path, image: Image.Image, **options: object) -> Path:
    image.save(path, **options)
    return path


def pixels(path: Path, size: int, channels: int = 3) -> np.ndarray:
    """Decoded pixels as [H, W, C]."""
    return decode_image(path, size, channels).transpose(1, 2, 0)


@pytest.mark.parametrize("ending", ["png", "bmp", "ppm", "tif", "tga", "webp"])
def test_lossless_files_of_the_target_size_are_decoded_exactly(tmp_path: Path, ending: str) -> None:
    drawn = noise(12, 12, 3)
    options = {"lossless": True} if ending == "webp" else {}
    path = saved(tmp_path / f"a.{ending}", Image.fromarray(drawn), **options)
    np.testing.assert_array_equal(pixels(path, 12), drawn)


def test_centre_square_of_a_rectangle_is_exact(tmp_path: Path) -> None:
    drawn = noise(9, 14, 3)
    np.testing.assert_array_equal(pixels(saved(tmp_path / "a.png", Image.fromarray(drawn)), 9), drawn[:, 2:11])
    tall = noise(14, 9, 3)
    np.testing.assert_array_equal(pixels(saved(tmp_path / "b.png", Image.fromarray(tall)), 9), tall[2:11])


@pytest.mark.parametrize(
    "orientation, turn",
    [
        (1, lambda a: a),
        (2, np.fliplr),
        (3, lambda a: np.rot90(a, 2)),
        (4, np.flipud),
        (5, lambda a: a.transpose(1, 0, 2)),
        (6, lambda a: np.rot90(a, -1)),
        (7, lambda a: np.rot90(a, 2).transpose(1, 0, 2)),
        (8, np.rot90),
    ],
)
@pytest.mark.parametrize("ending", ["png", "tif"])
def test_exif_orientation_is_applied(tmp_path: Path, orientation: int, turn, ending: str) -> None:
    drawn = noise(10, 10, 3)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = saved(tmp_path / f"a.{ending}", Image.fromarray(drawn), exif=exif)
    np.testing.assert_array_equal(pixels(path, 10), turn(drawn))


def test_rotated_jpeg_is_upright_when_reduced_while_decoding(tmp_path: Path) -> None:
    drawn = np.zeros((400, 400, 3), np.uint8)
    drawn[:200, 200:] = 255  # the top right quarter is white
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate clockwise: white ends in the bottom right
    path = saved(tmp_path / "a.jpg", Image.fromarray(drawn), exif=exif)
    quarters = pixels(path, 8).reshape(2, 4, 2, 4, 3)[:, 1:3, :, 1:3].mean((1, 3, 4))
    np.testing.assert_allclose(quarters, [[0, 0], [0, 255]], atol=6)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
@pytest.mark.parametrize("exif", [b"MM\0*\xff\xff\xff\xff", b"no TIFF header", b""])
def test_images_with_damaged_exif_are_decoded(tmp_path: Path, exif: bytes) -> None:
    drawn = noise(8, 8, 3)
    path = saved(tmp_path / "a.png", Image.fromarray(drawn), exif=b"Exif\0\0" + exif)
    np.testing.assert_array_equal(pixels(path, 8), drawn)


def over_white(rgb: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    share = alpha[..., None] / 255
    return rgb * share + 255 * (1 - share)


def test_transparent_pixels_are_blended_with_white(tmp_path: Path) -> None:
    rgba, la = noise(8, 8, 4), noise(8, 8, 2)
    rgba[0, :, 3], rgba[1, :, 3] = 0, 255
    got = pixels(saved(tmp_path / "rgba.png", Image.fromarray(rgba)), 8)
    np.testing.assert_allclose(got, over_white(rgba[..., :3], rgba[..., 3]), atol=1)
    assert (got[0] == 255).all()
    np.testing.assert_array_equal(got[1], rgba[1, :, :3])
    path = saved(tmp_path / "la.png", Image.fromarray(la))
    np.testing.assert_allclose(pixels(path, 8, 1), over_white(la[..., :1], la[..., 1]), atol=1)
    np.testing.assert_allclose(pixels(path, 8, 3), over_white(la[..., [0, 0, 0]], la[..., 1]), atol=1)


@pytest.mark.parametrize("ending", ["png", "gif"])
def test_transparent_palette_entry_becomes_white(tmp_path: Path, ending: str) -> None:
    image = Image.fromarray(np.repeat([[0], [1], [2], [1]], 4, axis=1).astype(np.uint8)).convert("P")
    image.putpalette([10, 20, 30, 200, 100, 50, 7, 8, 9])
    path = saved(tmp_path / f"a.{ending}", image, transparency=1)
    colours = np.array([[10, 20, 30], [255, 255, 255], [7, 8, 9], [255, 255, 255]])
    np.testing.assert_array_equal(pixels(path, 4), np.repeat(colours[:, None], 4, axis=1))
    plain = saved(tmp_path / f"b.{ending}", image)
    assert tuple(pixels(plain, 4)[1, 0]) == (200, 100, 50)


def test_transparent_rgb_colour_becomes_white(tmp_path: Path) -> None:
    drawn = noise(4, 4, 3)
    drawn[0], drawn[1:, :, 0] = (1, 2, 3), 9
    path = saved(tmp_path / "a.png", Image.fromarray(drawn), transparency=(1, 2, 3))
    drawn[0] = 255
    np.testing.assert_array_equal(pixels(path, 4), drawn)


def big_endian_tiff(path: Path, wide: np.ndarray) -> Path:
    """Write a big-endian TIFF by hand, because Pillow writes the byte order of this machine."""
    height, width = wide.shape
    entries = [
        (256, 4, width), (257, 4, height), (258, 3, 16 << 16), (259, 3, 1 << 16), (262, 3, 1 << 16), (273, 4, 8),
        (277, 3, 1 << 16), (278, 4, height), (279, 4, wide.size * 2),
    ]  # fmt: skip
    directory = struct.pack(">H", len(entries)) + b"".join(struct.pack(">HHII", t, k, 1, v) for t, k, v in entries)
    path.write_bytes(
        b"MM\0*" + struct.pack(">I", 8 + wide.size * 2) + wide.astype(">u2").tobytes() + directory + bytes(4)
    )
    return path


@pytest.mark.parametrize("kind", ["png", "tif", "big-endian.tif", "pgm"])
def test_16_bit_images_are_scaled_and_not_clipped(tmp_path: Path, kind: str) -> None:
    wide = RNG.integers(0, 65536, (6, 6)).astype(np.uint16)
    wide[0, :6] = (0, 128, 129, 257, 65534, 65535)
    path = tmp_path / f"a.{kind}"
    if kind == "big-endian.tif":
        assert Image.open(big_endian_tiff(path, wide)).mode == "I;16B"
    elif kind == "pgm":
        path.write_bytes(b"P5 6 6 65535\n" + wide.astype(">u2").tobytes())
    else:
        saved(path, Image.fromarray(wide))
    expected = np.rint(wide / 257.0)
    assert read_header(path).channels == 1
    np.testing.assert_array_equal(pixels(path, 6, 1)[..., 0], expected)
    np.testing.assert_array_equal(pixels(path, 6, 3), np.repeat(expected[..., None], 3, axis=2))


def test_integers_outside_16_bits_raise_an_error(tmp_path: Path) -> None:
    """Scans in Hounsfield units have such values. Clipping them would silently lose information."""
    wide = np.array([[0, 0], [65535, 257]], np.int32)
    found = pixels(saved(tmp_path / "a.tif", Image.fromarray(wide)), 2, 1)[..., 0]
    np.testing.assert_array_equal(found, [[0, 0], [255, 1]])
    for bad in (-5, 65536):
        wide[0, 1] = bad
        with pytest.raises(Unreadable, match="only 0 to 65535 is supported"):
            pixels(saved(tmp_path / "b.tif", Image.fromarray(wide)), 2, 1)


def test_float_images_are_scaled_from_0_to_1(tmp_path: Path) -> None:
    unit = RNG.random((5, 5)).astype(np.float32)
    path = saved(tmp_path / "a.tif", Image.fromarray(unit))
    assert read_header(path).channels == 1
    np.testing.assert_array_equal(pixels(path, 5, 1)[..., 0], np.rint(unit * 255.0))
    for bad in (7.0, float("nan"), -0.1):
        unit[2, 2] = bad
        with pytest.raises(Unreadable, match="0 to 1"):
            decode_image(saved(path, Image.fromarray(unit)), 5, 1)


def test_one_bit_and_cmyk_images_are_decoded(tmp_path: Path) -> None:
    bits = noise(8, 8) > 127
    path = saved(tmp_path / "a.png", Image.fromarray(bits))
    assert read_header(path).channels == 1
    np.testing.assert_array_equal(pixels(path, 8, 1)[..., 0], bits * 255)
    inks = noise(8, 8, 4)
    cmyk = Image.frombytes("CMYK", (8, 8), inks.tobytes())
    expected = (255 - inks[..., :3].astype(int)) * (255 - inks[..., 3:].astype(int)) / 255
    np.testing.assert_allclose(pixels(saved(tmp_path / "b.tif", cmyk), 8), expected, atol=1)


def test_colour_is_converted_to_grey_by_rec_601(tmp_path: Path) -> None:
    drawn = noise(8, 8, 3)
    got = pixels(saved(tmp_path / "a.png", Image.fromarray(drawn)), 8, 1)[..., 0]
    np.testing.assert_allclose(got, drawn @ np.array([0.299, 0.587, 0.114]), atol=0.51)


def test_first_frame_of_an_animation_is_decoded(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (6, 6), colour) for colour in ("red", "green", "blue")]
    for ending in ("gif", "png", "webp"):
        options = {"lossless": True} if ending == "webp" else {}
        path = saved(tmp_path / f"a.{ending}", frames[0], save_all=True, append_images=frames[1:], **options)
        assert Image.open(path).n_frames == 3
        np.testing.assert_array_equal(pixels(path, 6), np.broadcast_to([255, 0, 0], (6, 6, 3)))


@pytest.mark.parametrize("ending, shape", [("png", (70, 120, 3)), ("png", (500, 333, 3)), ("jpg", (500, 800, 3))])
def test_reduced_image_equals_the_resized_full_image(tmp_path: Path, ending: str, shape: tuple[int, ...]) -> None:
    rows, columns = np.mgrid[: shape[0], : shape[1]] / max(shape)
    smooth = np.stack([np.sin(9 * rows), np.cos(7 * columns), np.sin(8 * (rows + columns))], axis=2)
    path = saved(tmp_path / f"a.{ending}", Image.fromarray(np.uint8(127.5 + 127 * smooth)))
    whole = Image.open(path).convert("RGB")
    side = min(whole.size)
    left, top = (whole.width - side) // 2, (whole.height - side) // 2
    square = whole.crop((left, top, left + side, top + side)).resize((32, 32), Image.Resampling.BILINEAR)
    inner = np.s_[1:-1, 1:-1]  # at the border, pixels outside of the square contribute
    np.testing.assert_allclose(pixels(path, 32)[inner], np.asarray(square)[inner].astype(int), atol=3)


def test_extreme_aspect_ratio_is_decoded() -> None:
    assert crop_and_resize(Image.new("RGB", (100_000, 1)), 64, 3).shape == (3, 64, 64)


def test_small_image_is_enlarged(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.png", Image.new("RGB", (2, 3), (9, 8, 7)))
    np.testing.assert_array_equal(pixels(path, 16), np.broadcast_to([9, 8, 7], (16, 16, 3)))


def test_header_is_read_without_pixels(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.jpg", Image.fromarray(noise(20, 30, 3)))
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(Unreadable, match="truncated"):
        decode_image(path, 8, 3)
    header = read_header(path)
    assert (header.side, header.channels) == (20, 3)
    assert read_header(saved(tmp_path / "b.png", Image.new("LA", (5, 7)))).channels == 1


def test_unreadable_files_raise_an_error_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    for content, reason in ((b"", "empty file"), (b"no image at all", "not an image")):
        path.write_bytes(content)
        for read in (read_header, lambda path: decode_image(path, 8, 3)):
            with pytest.raises(Unreadable, match=reason):
                read(path)
    with pytest.raises(Unreadable, match="No such file"):
        decode_image(tmp_path / "none.png", 8, 3)


@pytest.mark.parametrize("ending", ["jpg", "png", "gif", "bmp", "tif", "webp", "ppm"])
def test_truncated_files_raise_an_error(tmp_path: Path, ending: str) -> None:
    path = saved(tmp_path / f"a.{ending}", Image.fromarray(noise(64, 64, 3)))
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    with pytest.raises(Unreadable):
        decode_image(path, 16, 3)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side, reason", [(10_000, "the limit is"), (60_000, "pixel_limit")])
def test_decompression_bombs_raise_an_error(tmp_path: Path, side: int, reason: str) -> None:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    path = tmp_path / "bomb.png"
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", b"") + chunk(b"IEND", b""))
    for read in (read_header, lambda path: decode_image(path, 8, 3)):
        with pytest.raises(Unreadable, match=reason):
            read(path)


@pytest.mark.filterwarnings("ignore:::PIL")
def test_changed_bytes_raise_no_other_error(tmp_path: Path) -> None:
    for ending in ("jpg", "png", "gif", "tif", "webp"):
        buffer = io.BytesIO()
        Image.fromarray(noise(24, 24, 3)).save(buffer, {"jpg": "jpeg", "tif": "tiff"}.get(ending, ending))
        path = tmp_path / f"a.{ending}"
        for _ in range(40):
            content = bytearray(buffer.getvalue())
            for place in RNG.integers(0, min(len(content), 200), 5):
                content[place] = RNG.integers(0, 256)
            path.write_bytes(content)
            reason = "none"
            try:
                assert decode_image(path, 8, 3).shape == (3, 8, 8)
            except Unreadable as error:
                reason = str(error)
            assert reason.splitlines() == [reason]


@pytest.mark.parametrize("kind", [bytes, Path])
@pytest.mark.parametrize("is_small", [True, False])
def test_only_small_jpeg_files_are_read_without_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type, is_small: bool
) -> None:
    def file(ending: str) -> Path | bytes:
        path = saved(tmp_path / f"a.{ending}", Image.fromarray(noise(20, 30, 3)))
        return path if kind is Path else path.read_bytes()

    monkeypatch.setattr(limited_files, "MOST_READS", 10**6 if is_small else 4)
    monkeypatch.setattr(limited_files, "MOST_IN_ALL", 4)
    if is_small:
        assert decode_image(file("jpg"), 8, 3).shape == (3, 8, 8)
    else:
        with pytest.raises(Unreadable, match="no complete image"):
            decode_image(file("jpg"), 8, 3)
    with pytest.raises(Unreadable, match="no complete image"):
        decode_image(file("png"), 8, 3)


@pytest.mark.parametrize("junk", [b"\0", b"\xff", b"\xff\0", b"\xff\xd8"])
def test_small_damaged_jpeg_files_are_refused_soon(junk: bytes) -> None:
    """Pillow searches the whole file for a marker, once."""
    content = b"\xff\xd8\xff" + junk * (limited_files.MOST_READS // len(junk) - 2)
    start = time.process_time()
    with pytest.raises(Unreadable):
        read_header(content)
    assert time.process_time() - start < 10


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_files_are_closed(tmp_path: Path) -> None:
    paths = [saved(tmp_path / f"a.{ending}", Image.fromarray(noise(20, 30, 3))) for ending in ("jpg", "png")]
    for name, content in (("empty.jpg", b""), ("none.jpg", b"no image"), ("cut.jpg", b"\xff\xd8\xff")):
        paths.append(tmp_path / name)
        paths[-1].write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        for path in paths:
            with suppress(Unreadable):
                decode_image(path, 8, 3)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("sides", [(20, 20), (375, 500), (64, 31)])
def test_squares_are_those_of_pillow_and_can_be_changed(channels: int, sides: tuple[int, int]) -> None:
    image = Image.fromarray(noise(*sides, 3)).convert("L" if channels == 1 else "RGB")
    side, size = min(sides), 24
    left, top = (image.width - side) // 2, (image.height - side) // 2
    box = (left, top, left + side, top + side)
    resized = image.resize((size, size), Image.Resampling.BILINEAR, box=box, reducing_gap=decode.REDUCING_GAP)
    found = crop_and_resize(image, size, channels)
    np.testing.assert_array_equal(found, np.asarray(resized).reshape(size, size, -1).transpose(2, 0, 1))
    found += 1
    assert found.flags.c_contiguous


def test_extensions_include_the_common_formats() -> None:
    assert extensions() >= {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}
    assert not extensions() & {".eps", ".pdf", ".mpg", ".txt"}


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "LA", "P", "I;16", "1"])
@pytest.mark.parametrize("orientation", [1, 2, 3, 4, 5, 6, 7, 8])
def test_large_images_are_reduced_in_strips(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, orientation: int
) -> None:
    rows, columns = np.mgrid[:97, :130] / 130
    smooth = np.uint8(127.5 + 100 * np.stack([np.sin(5 * rows), np.cos(4 * columns), np.sin(4 * (rows + columns))], 2))
    image = Image.fromarray(smooth)
    image = Image.fromarray(smooth[..., 0].astype(np.uint16) * 257) if mode == "I;16" else image.convert(mode)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "a.png"
    image.save(path, exif=exif)
    usual = pixels(path, 12)
    monkeypatch.setattr(decode, "LARGE_PIXELS", 1000)
    monkeypatch.setattr(decode, "STRIP_PIXELS", 700)
    np.testing.assert_allclose(pixels(path, 12), usual, atol=40 if mode in ("1", "P") else 8)
    assert pixels(path, 200).shape == (200, 200, 3)


def test_large_images_are_decoded_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [saved(tmp_path / f"{number}.png", Image.new("RGB", (40, 40))) for number in range(8)]
    monkeypatch.setattr(decode, "LARGE_PIXELS", 1000)
    at_work, most = [0], [0]
    reduce = decode._reduced_in_strips

    def watched(image: Image.Image, size: int, options: DecodeOptions) -> Image.Image:
        at_work[0] += 1
        most[0] = max(most[0], at_work[0])
        time.sleep(0.01)
        at_work[0] -= 1
        return reduce(image, size, options)

    monkeypatch.setattr(decode, "_reduced_in_strips", watched)
    with ThreadPoolExecutor(4) as threads:
        assert len(list(threads.map(lambda path: decode_image(path, 8, 3), paths))) == 8
    assert most[0] == 1
    with pytest.raises(Unreadable, match=decode.TOO_LARGE):
        decode.with_image(paths[0], 8, lambda image: image, most_pixels=1000)


@pytest.mark.full
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "I;16"])
def test_memory_of_images_below_the_limit_is_bounded(tmp_path: Path, mode: str) -> None:
    """Four small files of 88 million pixels each, decoded in four threads."""
    for number in range(4):
        Image.new(mode, (9400, 9400)).save(tmp_path / f"{number}.png", compress_level=1)
    program = f"""
import resource
from pathlib import Path
from twofold.data.load import load_data
from twofold.data.open import open_source
source = open_source({str(tmp_path)!r})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
load_data(source, image_size=32, channels=3, test_fraction=0.0)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TWOFOLD_CACHE": str(tmp_path / "cache")}
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert int(found.stdout) < 600_000  # KiB; a decoded file of 4 bytes per pixel has 345,000


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("ending", ["jpg", "png", "tif", "webp", "avif"])
def test_pixel_limit_lets_larger_images_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    if Image.registered_extensions().get(f".{ending}") not in Image.SAVE:
        pytest.skip(f"this Pillow does not write {ending}")
    path = saved(tmp_path / f"a.{ending}", Image.fromarray(np.full((60, 50, 3), 90, np.uint8)))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)  # Image.open raises an error above 2000
    for read in (read_header, lambda path: decode_image(path, 8, 3)):
        with pytest.raises(Unreadable, match=r"\(key pixel_limit\)"):
            read(path)
    options = DecodeOptions(pixel_limit=3000)
    assert read_header(path, options).longer == 60
    np.testing.assert_allclose(decode_image(path, 8, 3, options), 90, atol=2)
    with pytest.raises(Unreadable, match="the limit is 2999 pixels"):
        read_header(path, DecodeOptions(pixel_limit=2999))


def test_avif_files_are_decoded_like_the_picture_that_they_were_made_from(tmp_path: Path) -> None:
    if "AVIF" not in Image.SAVE:
        pytest.skip("this Pillow has no AVIF")
    ramp = np.tile(np.linspace(0, 255, 64, dtype=np.uint8), (48, 1))
    picture = Image.fromarray(np.stack([ramp, ramp[:, ::-1], np.full_like(ramp, 90)], axis=2))
    header = read_header(saved(tmp_path / "a.avif", picture, quality=95))
    assert (header.side, header.longer, header.channels) == (48, 64, 3)
    saved(tmp_path / "a.png", picture)
    avif, png = (decode_image(tmp_path / name, 32, 3).astype(int) for name in ("a.avif", "a.png"))
    assert np.abs(avif - png).mean() < 3
