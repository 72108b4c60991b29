"""The table of named datasets."""

import re
from pathlib import Path

import pytest

from twofold import config, keys
from twofold.data.open import open_source
from twofold.data.registry import NAMED_SETS
from twofold.errors import TwofoldError


def test_defaults_are_valid_configuration() -> None:
    for defaults in (named_set.defaults for named_set in NAMED_SETS.values()):
        # Widths are keys of methods. A dataset may set them for the methods that have them.
        widths = {"projector": keys.Widths, "predictor_width": int, "prototypes": int, "queue": int}
        known = config.RUN_KEYS | {name: keys.Key(name, hint, None, "") for name, hint in widths.items()}
        resolved = config.flat(config.resolve(known, {"data source": defaults}))
        assert {key: resolved[key] for key in defaults} == defaults


def test_error_for_the_folder_of_a_named_dataset_suggests_its_name(tmp_path: Path) -> None:
    """Both for the folder of the dataset and for its parent folder."""
    for file in ("cifar-10-batches-py/data_batch_1", "f/FashionMNIST/raw/train-images-idx3-ubyte.gz"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_bytes(b"")
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path, tmp_path / "cifar-10-batches-py"):
        with pytest.raises(
            TwofoldError,
            match=rf"files of cifar10 .*; use cifar10 as .* data_dir={re.escape(str(tmp_path))}$",
        ):
            open_source(folder)
    with pytest.raises(TwofoldError, match=r"files of fashion-mnist .*; use fashion-mnist .* data_dir=.*/f$"):
        open_source(tmp_path / "f/FashionMNIST/raw")
    with pytest.raises(TwofoldError, match=r"no images in .*tiff .*webp$"):
        open_source(tmp_path / "empty")
