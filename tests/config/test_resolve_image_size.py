"""Defaults that depend on the size of the images."""

from twofold.config.resolve import default_encoder_keys, default_image_size


def test_default_image_size_and_encoder_follow_the_size_of_the_images() -> None:
    sides = (3, 8, 28, 32, 47, 64, 70, 81, 100, 127, 145, 200, 500, 4000)
    assert [default_image_size(side) for side in sides] == [3, 8, 28, 32, 47, 64, 64, 96, 96, 128, 160, 224, 224, 224]
    assert default_encoder_keys(19) == {"stem": "small", "encoder": "conv"}
    assert [default_encoder_keys(size)["stem"] for size in (20, 48, 49, 80, 81, 224)] == [
        "small", "small", "small-pool", "small-pool", "large", "large",
    ]  # fmt: skip
    assert "encoder" not in default_encoder_keys(20)
