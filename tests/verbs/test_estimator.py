"""The estimator `Twofold`: scikit-learn's own checks, its features and its errors."""

import copy
import os
import pickle
import re
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import twofold
from running import Own
from twofold.verbs import pretrain

DIGITS = load_digits()
IMAGES = (DIGITS.images[:120] / 16).astype(np.float32)
SMALL = {"batch_size": 16, "projector": (16, 8)}

# Checks of scikit-learn that use their own tables, which are not images.
NO_IMAGE = "its rows have 1, 2, 3, 5 or 10 numbers, and no image has so many pixels, unless image_shape says so"
TOO_BRIGHT = "its numbers go beyond 1, the brightest pixel"
NOT_IMAGES = dict.fromkeys(
    [
        "check_fit_score_takes_y",
        "check_estimators_overwrite_params",
        "check_dont_overwrite_parameters",
        "check_estimators_fit_returns_self",
        "check_readonly_memmap_input",
        "check_estimators_dtypes",
        "check_dtype_object",
        "check_pipeline_consistency",
        "check_estimators_nan_inf",
        "check_estimators_pickle",
        "check_f_contiguous_array_estimator",
        "check_transformer_data_not_an_array",
        "check_transformer_general",
        "check_methods_sample_order_invariance",
        "check_methods_subset_invariance",
        "check_dict_unchanged",
        "check_fit_idempotent",
        "check_fit_check_is_fitted",
        "check_n_features_in",
        "check_fit2d_predict1d",
    ],
    NO_IMAGE,
) | {"check_n_features_in_after_fitting": TOO_BRIGHT}


class OnTables(twofold.Twofold):
    """Accepts any table: numbers are mapped to 0 to 1, and columns become the first pixels of 8 × 8 images."""

    def _images(self, X: np.ndarray) -> np.ndarray:
        pixels = np.zeros((len(X), 64))
        pixels[:, : X.shape[1]] = 1 / (1 + np.exp(-np.asarray(X, np.float64)))[:, :64]
        return pixels.reshape(len(X), 8, 8)


def outcomes(estimator: twofold.Twofold, expected: dict[str, str]) -> dict[str, set[str]]:
    """The names of the checks by their outcome."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of checks that are skipped, and of those that are expected to fail
        results = check_estimator(estimator, expected_failed_checks=expected, on_skip=None)
    found: dict[str, set[str]] = {}
    for result in results:
        found.setdefault(result["status"], set()).add(result["check_name"])
    return found


def test_scikit_learn_checks_pass_for_tables_that_are_images() -> None:
    found = outcomes(twofold.Twofold(epochs=1, **SMALL), NOT_IMAGES)
    assert found["xfail"] == set(NOT_IMAGES)
    assert set(found) <= {"passed", "skipped", "xfail"}
    assert len(found["passed"]) >= 20


@pytest.mark.full
def test_scikit_learn_checks_pass_if_tables_are_converted_to_images() -> None:
    found = outcomes(OnTables(epochs=1, overrides=SMALL | {"batch_size": 8}), {})
    assert set(found) <= {"passed", "skipped"}
    assert found["passed"] >= set(NOT_IMAGES)


@pytest.fixture(scope="module")
def fitted() -> twofold.Twofold:
    return twofold.Twofold(epochs=1, overrides=SMALL, random_state=3).fit(IMAGES)


def test_features_equal_those_of_a_run_with_the_same_settings(fitted: twofold.Twofold, tmp_path: Path) -> None:
    run = twofold.pretrain(IMAGES, method="frossl", epochs=1, seed=3, out=tmp_path / "run", **SMALL)
    encoder = twofold.load_encoder(run)
    pixels = np.rint(IMAGES * 255).astype(np.uint8)[:, None]
    with torch.no_grad():
        expected = encoder(encoder.preprocess(torch.from_numpy(pixels))).numpy()
    found = fitted.transform(IMAGES)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert fitted.metrics_ == run.metrics
    assert fitted.config_.seed == 3
    assert list(fitted.get_feature_names_out()[:2]) == ["twofold0", "twofold1"]
    assert len(fitted.get_feature_names_out()) == found.shape[1] == 256


def test_keys_as_parameters_equal_those_in_overrides(fitted: twofold.Twofold) -> None:
    step = twofold.Twofold(epochs=1, random_state=3, augment__flip=0.5, batch_size=16, projector=(16, 8))
    for estimator in (step, clone(step), pickle.loads(pickle.dumps(step))):
        assert estimator.get_params() == twofold.Twofold(epochs=1, random_state=3).get_params() | {
            "augment__flip": 0.5,
            "batch_size": 16,
            "projector": (16, 8),
        }
        assert (
            repr(estimator)
            == "Twofold(augment__flip=0.5, batch_size=16, epochs=1, projector=(16, 8),\n        random_state=3)"
        )
    np.testing.assert_array_equal(clone(step).fit(IMAGES).transform(IMAGES), fitted.transform(IMAGES))
    changed = clone(step).set_params(augment__flip=0, temperature=0.1, method="simclr", batch_size=...)
    assert changed.fit(IMAGES).config_.augment.flip == 0
    assert changed.config_.parameters["temperature"] == 0.1
    assert "batch_size" not in changed.get_params()
    assert changed.config_.origin.get("batch_size") != "user"


def test_grid_search_varies_the_keys_of_a_run_and_of_its_method() -> None:
    labels = DIGITS.target[:40] % 2
    steps = [("ssl", twofold.Twofold("simclr", epochs=1, projector=(16, 8))), ("classify", LogisticRegression())]
    grid = {"ssl__batch_size": [10, 20], "ssl__temperature": [0.1, 0.5]}
    search = GridSearchCV(Pipeline(steps), grid, cv=[(range(20), range(20, 40))], error_score="raise")
    search.fit(IMAGES[:40], labels)
    for parameters, score in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True):
        own = {name.removeprefix("ssl__"): value for name, value in parameters.items()}
        step = twofold.Twofold("simclr", epochs=1, overrides={"projector": (16, 8), **own}).fit(IMAGES[:20])
        alone = LogisticRegression().fit(step.transform(IMAGES[:20]), labels[:20])
        assert score == alone.score(step.transform(IMAGES[20:40]), labels[20:])
    best = search.best_estimator_["ssl"].config_
    assert best.batch_size == search.best_params_["ssl__batch_size"]
    assert best.parameters["temperature"] == search.best_params_["ssl__temperature"]


def test_unknown_parameters_name_the_nearest_ones() -> None:
    meant = {
        "bach_size": ", did you mean 'batch_size'?",
        "temprature": ", did you mean 'temperature'?",  # a key of some methods
        "flip": ", did you mean 'augment__flip'?",
        "augment.flip": ", did you mean 'augment__flip'?",
        "random_sate": ", did you mean 'random_state'?",
        "qqqqqqq": "; list the keys of a method with: twofold methods NAME",
        "seed": ": use the parameter random_state",
        "data": ": the images are X",
    }
    for name, advice in meant.items():
        for make in (lambda **keys: twofold.Twofold(**keys), lambda **keys: twofold.Twofold().set_params(**keys)):
            with pytest.raises(ValueError, match=re.escape(f"Twofold has no parameter '{name}'{advice}")):
                make(**{name: 1})
    estimator = twofold.Twofold(batch_size=16)
    with pytest.raises(ValueError, match="epoks"):
        estimator.set_params(epochs=3, batch_size=32, epoks=4)
    assert (estimator.epochs, estimator.batch_size) == (100, 16)  # nothing changes if one of the names is wrong
    with pytest.raises(ValueError, match=r"frossl has no key 'temperature'; methods with this key: .*simclr"):
        twofold.Twofold(temperature=0.5).fit(IMAGES)
    with pytest.raises(ValueError, match="batch_size is given twice: as a parameter and in overrides"):
        twofold.Twofold(batch_size=16, overrides={"batch_size": 16}).fit(IMAGES)


def test_every_layout_of_the_same_images_gives_the_same_features(fitted: twofold.Twofold) -> None:
    expected = fitted.transform(IMAGES)
    same = {
        "rows": IMAGES.reshape(120, 64),
        "bytes": np.rint(IMAGES * 255).astype(np.uint8),
        "channel last": IMAGES[..., None],
        "double": IMAGES.astype(np.float64),
    }
    for name, images in same.items():
        if images.ndim != 2:
            assert np.array_equal(fitted.transform(images), expected), name
        other = clone(fitted).fit_transform(images)
        np.testing.assert_array_equal(other, expected, err_msg=name)


def test_rows_of_colour_images_need_image_shape() -> None:
    pixels = np.random.default_rng(0).random((20, 12, 12, 3))
    rows = pixels.reshape(20, -1)
    for shape, given in (((12, 12, 3), rows), ((3, 12, 12), pixels.transpose(0, 3, 1, 2).reshape(20, -1))):
        found = twofold.Twofold(epochs=1, image_shape=shape, overrides=SMALL | {"batch_size": 4}).fit_transform(given)
        expected = twofold.Twofold(epochs=1, overrides=SMALL | {"batch_size": 4}).fit_transform(pixels)
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match=r"but an image of shape \(20, 20\) has 400: set image_shape"):
        twofold.Twofold().fit(rows)
    with pytest.raises(
        twofold.TwofoldError, match=r"rows of 432 pixels, but an image of shape \(5, 5\) has 25: change image_shape"
    ):
        twofold.Twofold(image_shape=(5, 5)).fit(rows)


def test_pipeline_equals_the_classifier_on_the_features() -> None:
    labels = DIGITS.target[:120]
    step = twofold.Twofold(epochs=1, overrides=SMALL)
    pipeline = make_pipeline(step, LogisticRegression(max_iter=200)).fit(IMAGES[:100], labels[:100])
    features = clone(step).fit(IMAGES[:100])
    alone = LogisticRegression(max_iter=200).fit(features.transform(IMAGES[:100]), labels[:100])
    assert np.array_equal(pipeline.predict(IMAGES[100:]), alone.predict(features.transform(IMAGES[100:])))
    assert pipeline.score(IMAGES[100:], labels[100:]) > 0.5
    pipeline.set_params(twofold__epochs=2, twofold__method="simclr")
    assert pipeline.get_params()["twofold__method"] == "simclr"
    assert clone(pipeline)[0].epochs == 2


def test_pickled_estimator_gives_the_same_features_for_one_image(fitted: twofold.Twofold) -> None:
    again = pickle.loads(pickle.dumps(fitted))
    one = fitted.transform(IMAGES[7:8])
    assert one.shape == (1, 256)
    assert np.array_equal(again.transform(IMAGES[7:8]), one)


def test_features_depend_on_random_state() -> None:
    def features(random_state: Any) -> np.ndarray:
        return twofold.Twofold(epochs=1, overrides=SMALL, random_state=random_state).fit_transform(IMAGES[:40])

    assert np.array_equal(features(0), features(0))
    assert not np.array_equal(features(0), features(1))
    assert np.array_equal(features(np.random.RandomState(5)), features(np.random.RandomState(5)))


def test_fit_leaves_no_files_unless_out_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path)
    estimator = twofold.Twofold(epochs=1, overrides=SMALL).fit(IMAGES[:40])
    assert not hasattr(estimator, "run_")
    assert os.listdir(tmp_path / "temporary") == []
    assert os.listdir(tmp_path) == ["temporary"]
    assert capfd.readouterr() == ("", "")
    estimator.set_params(out=tmp_path / "runs").fit(IMAGES[:40]).fit(IMAGES[:40])
    assert sorted(os.listdir(tmp_path / "runs")) == ["frossl-1", "frossl-2"]
    assert estimator.run_.report.exists()
    assert not hasattr(estimator.set_params(out=None).fit(IMAGES[:40]), "run_")  # it belonged to an earlier fit


def test_run_name_taken_by_another_fit_is_not_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = pretrain.read_data

    def read_slowly(*arguments: Any, **options: Any) -> Any:
        (tmp_path / "runs" / "frossl-1").mkdir(parents=True)
        return read(*arguments, **options)

    monkeypatch.setattr(pretrain, "read_data", read_slowly)
    fitted = twofold.Twofold(epochs=1, overrides=SMALL, out=tmp_path / "runs").fit(IMAGES[:40])
    assert fitted.run_.path.name == "frossl-2"


def test_failed_fit_keeps_the_previous_fit(tmp_path: Path) -> None:
    estimator = twofold.Twofold(epochs=1, overrides=SMALL, out=tmp_path).fit(IMAGES[:40].reshape(40, 64))
    before, features = dict(vars(estimator)), estimator.transform(IMAGES[:3].reshape(3, 64))
    for broken in ({"method": "simcrl"}, {"overrides": {"batchsize": 3}}, {"overrides": SMALL | {"lr": 1e30}}):
        with pytest.raises(ValueError, match=r"simcrl|batchsize|not finite"):
            estimator.set_params(**broken).fit(IMAGES[:40, :6, :6].reshape(40, 36))
        estimator.set_params(method="frossl", overrides=SMALL)
        assert vars(estimator) == before
    np.testing.assert_array_equal(estimator.transform(IMAGES[:3].reshape(3, 64)), features)


def test_own_encoder_module_is_not_changed() -> None:
    module = Own()
    before = module.linear.weight.detach().clone()
    estimator = twofold.Twofold(epochs=1, overrides=SMALL | {"encoder": module}).fit(IMAGES[:40])
    assert torch.equal(module.linear.weight, before)
    assert not torch.equal(estimator.encoder_.linear.weight.cpu(), before)
    assert estimator.transform(IMAGES[:3]).shape == (3, 20)


def test_invalid_arguments_raise_value_errors_that_say_what_to_do() -> None:
    with pytest.raises(ValueError, match="scale them to the range 0 to 1"):
        twofold.Twofold().fit(DIGITS.images)
    with pytest.raises(ValueError, match="unknown method 'simcrl', did you mean 'simclr'"):
        twofold.Twofold(method="simcrl").fit(IMAGES)
    with pytest.raises(ValueError, match="unknown key 'batchsize', did you mean 'batch_size'"):
        twofold.Twofold(overrides={"batchsize": 3}).fit(IMAGES)
    with pytest.raises(ValueError, match="overrides is a list: give a dict of settings, such as"):
        twofold.Twofold(overrides=["batch_size=3"]).fit(IMAGES)
    for shape in (64, (64,), (8, 8.0), (-8, -8)):
        with pytest.raises(ValueError, match=r"image_shape=.*: give \(H, W\), \(H, W, C\) or \(C, H, W\), such as"):
            twofold.Twofold(image_shape=shape).fit(IMAGES.reshape(120, 64))
    with pytest.raises(ValueError, match="unknown method 'None'"):
        twofold.Twofold(method=None).fit(IMAGES)
    elsewhere = {
        "data": "the images are X",
        "epochs": "parameter epochs",
        "method": "parameter method",
        "seed": "random_state",
    }
    for key, place in elsewhere.items():
        with pytest.raises(ValueError, match=f"overrides contains '{key}': .*{place}"):
            twofold.Twofold(overrides={key: 3}).fit(IMAGES)
    with pytest.raises(ValueError, match="this estimator ignores y"):
        twofold.Twofold("supervised").fit(IMAGES, DIGITS.target[:120])
    for blank in (np.zeros_like(IMAGES), IMAGES / 1000):  # as uint8, the latter are 0, too
        with pytest.raises(ValueError, match="all pixels of all images are equal"):
            twofold.Twofold(epochs=1).fit(blank)


def test_pillow_images_of_every_mode_are_read_like_files(fitted: twofold.Twofold) -> None:
    grey = [Image.fromarray((255 * image).astype(np.uint8)) for image in IMAGES[:6]]
    expected = fitted.transform(np.stack([np.asarray(picture) for picture in grey]))
    np.testing.assert_array_equal(fitted.transform(grey), expected)
    for mode in ("RGB", "RGBA", "LA", "P"):  # np.asarray gives other values, such as palette indices
        np.testing.assert_allclose(fitted.transform([picture.convert(mode) for picture in grey]), expected, atol=0.02)
    with pytest.raises(ValueError, match=r"different sizes, such as \(4, 4\) and \(8, 8\): resize them to one size"):
        fitted.transform([grey[0], grey[1].resize((4, 4))])
    for paths in ("photos", ["a.png", "b.png"]):
        with pytest.raises(ValueError, match=r"twofold\.pretrain, which accepts paths"):
            fitted.transform(paths)


def test_transform_accepts_other_image_sizes_but_not_other_row_lengths() -> None:
    generator = np.random.default_rng(0)
    estimator = twofold.Twofold(epochs=1, overrides=SMALL).fit(generator.random((20, 8, 12, 3)))
    for shape in ((5, 8, 30, 3), (5, 16, 12, 3), (5, 3, 8, 12)):
        assert estimator.transform(generator.random(shape)).shape == (5, 256)
    pixels = torch.rand(5, 3, 8, 12, requires_grad=True)
    np.testing.assert_array_equal(estimator.transform(pixels), estimator.transform(pixels.detach().numpy()))
    rows = twofold.Twofold(epochs=1, overrides=SMALL).fit(generator.random((20, 64)))
    with pytest.raises(ValueError, match="X has 81 features, but Twofold is expecting 64"):
        rows.transform(generator.random((3, 81)))


def test_transforming_rows_after_fitting_images_needs_image_shape(fitted: twofold.Twofold) -> None:
    rows = IMAGES[:5].reshape(5, 64)
    with pytest.raises(
        ValueError, match=r"rows of 64 pixels, but the estimator was fitted on images of shape \(8, 8\): give im"
    ):
        fitted.transform(rows)
    shaped = copy.copy(fitted).set_params(image_shape=(8, 8))
    np.testing.assert_array_equal(shaped.transform(rows), fitted.transform(IMAGES[:5]))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_tensors_are_accepted(fitted: twofold.Twofold, kind: torch.dtype) -> None:
    images = torch.from_numpy(IMAGES[:5]).to(kind)  # multiples of 1/16, which are exact in both dtypes
    np.testing.assert_array_equal(fitted.transform(images), fitted.transform(IMAGES[:5]))


@pytest.mark.parametrize("fitted, given", [(3, 4), (4, 3), (4, 1)])
def test_images_with_other_channels_raise_an_error(fitted: int, given: int) -> None:
    generator = np.random.default_rng(0)
    estimator = twofold.Twofold(epochs=1, overrides=SMALL).fit(generator.random((20, 10, 10, fitted)))
    with pytest.raises(
        ValueError, match=f"images with {given} channels, but the estimator was fitted on images with {fitted}"
    ):
        estimator.transform(generator.random((3, 10, 10, given)))


def test_fits_in_threads_give_the_same_features_and_keep_the_random_state() -> None:
    def features(_: int = 0) -> np.ndarray:
        return twofold.Twofold(epochs=2, overrides=SMALL).fit(IMAGES[:40]).transform(IMAGES[:40])

    before, expected = torch.get_rng_state(), features()
    assert torch.equal(torch.get_rng_state(), before)
    with ThreadPoolExecutor(3) as threads:
        for found in threads.map(features, range(9)):
            np.testing.assert_array_equal(found, expected)


def test_torch_modes_are_ignored_and_other_default_dtypes_raise_an_error() -> None:
    def features() -> np.ndarray:
        return twofold.Twofold(epochs=1, overrides=SMALL).fit(IMAGES[:40]).transform(IMAGES[:3])

    expected = features()
    for mode in (torch.no_grad(), torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16)):
        with mode:
            np.testing.assert_array_equal(features(), expected)
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(ValueError, match=r"set_default_dtype\(torch.float32\) first"):
            twofold.Twofold(epochs=1, overrides=SMALL).fit(IMAGES[:40])
    finally:
        torch.set_default_dtype(torch.float32)
