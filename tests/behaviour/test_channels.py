"""Images with any number of channels: reading, training, and loading the encoder."""

import numpy as np
import pytest
import torch
from PIL import Image

import running
import twofold
from twofold.data.load import load_data
from twofold.data.open import open_source
from twofold.data.readers.arrays import from_arrays
from twofold.errors import TwofoldError

RNG = np.random.default_rng(0)


def noise(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize("channels", [2, 4, 7])
def test_each_channel_is_resized_like_a_grey_image_by_pillow(channels: int) -> None:
    images = noise(2, 20, 26, channels)
    decoded = from_arrays("x", images)[0].decode(np.arange(2), 10, channels, "key", None).images
    assert decoded.shape == (2, channels, 10, 10)
    for got, image in zip(decoded, images, strict=True):
        for plane, pixels in zip(got, image[:, 3:23].transpose(2, 0, 1), strict=True):
            expected = np.asarray(Image.fromarray(pixels).resize((10, 10), Image.Resampling.BILINEAR)).astype(int)
            # The outermost columns may differ, because the reader also averages pixels outside of the centre square.
            np.testing.assert_allclose(plane[:, 1:-1], expected[:, 1:-1], atol=1)


@pytest.mark.parametrize("have, asked", [(4, 3), (4, 1), (3, 4), (1, 2)])
def test_impossible_channel_conversions_raise_an_error(have: int, asked: int) -> None:
    source = open_source(noise(4, 8, 8, have))
    with pytest.raises(TwofoldError, match=f"have {have} channels, which cannot be converted to channels={asked}"):
        load_data(source, image_size=8, channels=asked, test_fraction=0)


@pytest.mark.parametrize("channels", [2, 5])
def test_training_loading_and_embedding_work_with_any_number_of_channels(channels: int, tmp_path) -> None:
    images, labels = noise(60, 12, 12, channels), np.arange(60) % 3
    run = twofold.pretrain((images, labels), out=tmp_path / "run", **running.small("frossl", epochs=1, batch_size=16))
    assert run.config.channels == channels
    rows = {row["name"] for row in run.results["table"]}
    assert rows == {"trained", "untrained", "HOG + colour", "raw pixels"}
    encoder = twofold.load_encoder(run)
    features = encoder(encoder.preprocess(torch.from_numpy(images[:4].transpose(0, 3, 1, 2))))
    assert features.shape == (4, 256)
    with pytest.raises(TwofoldError, match=rf"uint8 pixels \[N, {channels}, H, W\]"):
        encoder.preprocess(Image.new("RGB", (12, 12)))
    written = np.load(twofold.embed(run, images, tmp_path / "features.npz"))
    np.testing.assert_allclose(written["features"][:4], features.detach().numpy(), atol=1e-4)
    assert f"12 pixels, {channels} channels" in (tmp_path / "run" / "log.txt").read_text()
