"""`Twofold`: pretraining as a transformer of scikit-learn.

n images, H height, W width, C channels, K feature dimension.
"""

import copy
import math
import operator
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from PIL import Image
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from twofold.data.decode import Unreadable, to_grey_or_rgb
from twofold.data.readers.arrays import from_arrays, to_numpy
from twofold.data.store import ImageStore, readonly_tensor
from twofold.device import choose_device
from twofold.errors import TwofoldError
from twofold.evaluate.encoder import Encoder
from twofold.methods import find
from twofold.models import feature_dimension
from twofold.runs.folder import Numbered
from twofold.runs.preprocess import preprocess_of
from twofold.runs.weights import load_encoder
from twofold.verbs.pretrain import pretrain

ALLOWED = {"allow_nd": True, "ensure_non_negative": True}
SET_ELSEWHERE = {  # keys of the run that overrides must not hold
    "data": "the images are X",
    "method": "it is a parameter of its own",
    "epochs": "it is a parameter of its own",
    "seed": "it is random_state",
}


class InvalidInput(TwofoldError, ValueError):
    """What scikit-learn expects of an estimator that refuses its input."""


class Twofold(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Learns features of images without labels; `transform` gives them.

    X are images [n, H, W], [n, H, W, C] or [n, C, H, W], uint8 or float from 0 to 1; or rows of pixels [n, H·W·C], with
    their `image_shape` (for square grey images it is known).

    method        see `twofold.methods()`
    epochs        passes over the images
    image_shape   (H, W), (H, W, C) or (C, H, W) of the rows of a two-dimensional X
    overrides     further keys of the run, such as {"batch_size": 128, "augment.flip": 0}; "encoder" may be a module
    random_state  of weights, order and augmentation; a number gives the same features again
    out           a folder in which every fit leaves its run, with report and checkpoints; None: nothing is left
    verbose       whether progress is shown

    After `fit`: `encoder_` (a module with `.preprocess`), `config_`, `metrics_` (the values of the run's log points),
    `n_features_in_`, and `run_` where there is `out`.
    """

    def __init__(
        self,
        method: str = "frossl",
        epochs: int = 100,
        image_shape: tuple[int, ...] | None = None,
        overrides: Mapping[str, Any] | None = None,
        *,
        random_state: int | np.random.RandomState | None = 0,
        out: str | Path | None = None,
        verbose: bool = False,
    ):
        self.method = method
        self.epochs = epochs
        self.image_shape = image_shape
        self.overrides = overrides
        self.random_state = random_state
        self.out = out
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 — labels are for others in a pipeline
        """Train on all images; `y` is not looked at."""
        checks: dict[str, Any] = {**ALLOWED, "ensure_min_samples": 2, "ensure_min_features": 2}
        X = check_array(as_array(X), **checks, estimator=self, input_name="X")
        with tempfile.TemporaryDirectory(prefix="twofold-") as aside, value_errors():
            find(self.method)
            if self.method == "supervised":
                raise TwofoldError(
                    "supervised needs labels, and Twofold does not look at y: "
                    "call twofold.pretrain((X, y), method='supervised')"
                )
            if self.overrides is not None and not isinstance(self.overrides, Mapping):
                raise TwofoldError(
                    f"overrides are a {type(self.overrides).__name__}: give keys and their values, such as "
                    '{"batch_size": 128}'
                )
            for key, place in SET_ELSEWHERE.items():
                if key in (self.overrides or {}):
                    raise TwofoldError(f"overrides hold '{key}': {place}, so leave it out there")
            images = self._images(X)
            keys = {"epochs": self.epochs, "seed": self._seed(), **(self.overrides or {})}
            module = keys.pop("encoder", None)
            run = pretrain(
                {"data": images, **keys},
                method=self.method,
                encoder=copy.deepcopy(module),  # a parameter stays as it was given
                out=Numbered(Path(aside if self.out is None else self.out), self.method),
                quiet=not self.verbose,
            )
            own = copy.deepcopy(module) if isinstance(module, nn.Module) else None
            encoder = load_encoder(run, encoder=own)
            preprocess = preprocess_of(encoder)
            width = feature_dimension(encoder, preprocess.channels, preprocess.image_size)
            config, metrics = run.config, run.metrics
        # All at once: where anything above fails, an earlier fit stays whole.
        validate_data(self, X, skip_check_array=True)
        self.encoder_, self.config_, self.metrics_ = encoder, config, metrics
        self._shape_in, self._n_features_out = X.shape[1:], width
        self.__dict__.pop("run_", None)  # of an earlier fit
        if self.out is not None:
            self.run_ = run
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Features, float32 [n, K]."""
        check_is_fitted(self)
        X = as_array(X)
        fitted_on_rows = len(self._shape_in) == 1
        if X.ndim == 2 and not fitted_on_rows and self.image_shape is None:
            raise InvalidInput(
                f"X has rows of {X.shape[1]} pixels, and this was fitted on images of shape {self._shape_in}: "
                "give images, or the shape of an image as image_shape"
            )
        # Images may be of another size than those of `fit`: they are all cut and resized. Rows of pixels may not.
        of_one_length = X.ndim <= 2 and fitted_on_rows
        X = validate_data(self, X, reset=False, **ALLOWED) if of_one_length else check_array(X, **ALLOWED)
        with value_errors():
            pixels, *_ = from_arrays("X", self._images(X))
        preprocess = preprocess_of(self.encoder_)
        channels = {preprocess.channels, pixels.channels}
        if len(channels) > 1 and not channels <= {1, 3}:
            raise InvalidInput(
                f"X has images of {pixels.channels} channels, and this was fitted on images of {preprocess.channels}"
            )
        rows = np.arange(len(pixels))
        # As training images were: cut and resized to bytes, so that an image has one set of features.
        decoded = pixels.decode(rows, preprocess.image_size, preprocess.channels, "", None)
        encoder = Encoder.on_device(
            self.encoder_, preprocess, choose_device(self.config_.device), self.config_.precision
        )
        features = encoder.features(ImageStore(readonly_tensor(decoded.images), None, torch.from_numpy(rows)))
        return features.cpu().numpy()

    def _images(self, X: np.ndarray) -> np.ndarray:
        if X.ndim > 2:
            return X
        side = math.isqrt(X.shape[1])
        shape = (side, side) if self.image_shape is None else checked_shape(self.image_shape)
        if math.prod(shape) != X.shape[1]:
            remedy = "give the shape of an image as image_shape" if self.image_shape is None else "they do not fit"
            raise TwofoldError(f"X has rows of {X.shape[1]} pixels, and an image of shape {shape} has others: {remedy}")
        return X.reshape(len(X), *(shape if len(shape) == 3 else (*shape, 1)))

    def _seed(self) -> int:
        if isinstance(self.random_state, (int, np.integer)):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = []  # float32, whatever the pixels were
        return tags


def checked_shape(given: Any) -> tuple[int, ...]:
    try:
        shape = tuple(operator.index(side) for side in given)
    except TypeError:
        shape = ()
    if len(shape) not in (2, 3) or min(shape) < 1:
        raise TwofoldError(f"image_shape={given}: give (H, W), (H, W, C) or (C, H, W), such as (28, 28)")
    return shape


def as_array(X: Any) -> Any:
    """What has no dimensions of its own, such as a list of pictures, as an array."""
    if hasattr(X, "ndim"):
        return to_numpy(X)
    if isinstance(X, (list, tuple)) and X and all(isinstance(item, Image.Image) for item in X):
        return stacked(X)
    if isinstance(X, (str, Path)) or (isinstance(X, (list, tuple)) and X and isinstance(X[0], (str, Path))):
        raise InvalidInput(
            "X is a path, or some of them: give pixels, or train with twofold.pretrain, which takes paths"
        )
    return np.asarray(X)


def stacked(pictures: Sequence[Image.Image]) -> np.ndarray:
    """uint8 [n, H, W] or [n, H, W, 3], as files of such pictures are read."""
    try:
        images = [to_grey_or_rgb(picture) for picture in pictures]
    except Unreadable as error:
        raise InvalidInput(f"X has a picture that cannot be used: {error}") from None
    sizes = sorted({image.size for image in images})
    if len(sizes) > 1:
        raise InvalidInput(
            f"X has pictures of {sizes[0]} and of {sizes[-1]} pixels: bring them to one size by resize()"
        )
    mode = "L" if all(image.mode == "L" for image in images) else "RGB"
    return np.stack([np.asarray(image.convert(mode)) for image in images])


@contextmanager
def value_errors() -> Iterator[None]:
    try:
        yield
    except TwofoldError as error:
        raise InvalidInput(str(error)) from error
