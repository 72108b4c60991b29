"""`Twofold`: pretraining as a scikit-learn transformer.

In shapes, n is the number of images, H the height, W the width, C the number of channels, and K the dimension of the
features.
"""

import copy
import inspect
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

from twofold.data.decode import to_grey_or_rgb
from twofold.data.decode_options import Unreadable
from twofold.data.readers.arrays import from_arrays, to_numpy
from twofold.data.store import ImageStore, readonly_tensor
from twofold.device import choose_device
from twofold.errors import TwofoldError
from twofold.evaluate.encoder import Encoder
from twofold.keys import nearest_key
from twofold.methods import CATALOG, find, name_of_method, schema
from twofold.models import feature_dimension
from twofold.runs.new_folder import NumberedPath
from twofold.runs.preprocess import preprocess_of
from twofold.runs.weights import load_encoder
from twofold.verbs.pretrain import pretrain

ALLOWED = {"allow_nd": True, "ensure_non_negative": True}
SET_ELSEWHERE = {  # keys that overrides must not contain, with the reason
    "data": "the images are X",
    "method": "use the parameter method",
    "epochs": "use the parameter epochs",
    "seed": "use the parameter random_state",
}
DOT = "__"  # stands for the dot of a key in the name of a parameter, as in augment__flip


class InvalidInput(TwofoldError, ValueError):
    """A `TwofoldError` that is also a `ValueError`, which scikit-learn expects for invalid input."""


def keys_of_all_methods() -> set[str]:
    """Return the keys that are no parameters under another name, of all methods that are registered now."""
    return {key for method in CATALOG for key in schema(method)} - SET_ELSEWHERE.keys()


def with_all_keys(init: inspect.Signature) -> inspect.Signature:
    """Return the signature of `__init__` without `self`, and with the keys of all methods instead of `**keys`."""
    own = [each for each in init.parameters.values() if each.name != "self" and each.kind is not each.VAR_KEYWORD]
    names = sorted(key.replace(".", DOT) for key in keys_of_all_methods())
    return inspect.Signature(
        [*own, *(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=...) for name in names)]
    )


class Twofold(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A scikit-learn transformer that learns features of images without labels.

    `fit` trains an encoder, and `transform` returns the features of images. `X` has images `[n, H, W]`, `[n, H, W, C]`
    or `[n, C, H, W]`, or rows of pixels `[n, H·W·C]`. The pixels are uint8, or floats from 0 to 1.

    Parameters
    ----------
    method : str
        The name of the method. `twofold.methods()` lists all names.
    epochs : int
        The number of passes over the images.
    image_shape : tuple of int, optional
        The shape `(H, W)`, `(H, W, C)` or `(C, H, W)` of an image, if `X` has rows of pixels. Not needed for square
        grey images.
    overrides : Mapping, optional
        Further settings as a dict, such as `{"batch_size": 128, "augment.flip": 0}`.
    random_state : int, RandomState or None
        The seed of the weights, the order of images and the augmentation. With an int, every `fit` gives the same
        features.
    out : str or Path, optional
        A folder in which every `fit` keeps its run folder, with report and checkpoints. By default, `fit` keeps none.
    verbose : bool
        Print progress.
    **keys
        Any other setting of a run or of its method, with two underscores for a dot: `batch_size=128, temperature=0.2,
        augment__flip=0`. `twofold methods NAME` lists them. `encoder` may be a module. The value `...` stands for the
        default. `get_params` returns the settings that were given and `set_params` accepts all, so a grid search can
        vary each of them.

    Attributes
    ----------
    encoder_ : nn.Module
        The trained encoder. Its module `preprocess` prepares images.
    config_ : Config
        The configuration of the run.
    metrics_ : list of dict
        The metrics during training, such as the loss.
    n_features_in_ : int
        The number of features of `X`, as scikit-learn counts them.
    run_ : Run
        The run, only if `out` is given.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> model = make_pipeline(twofold.Twofold(epochs=20), LogisticRegression())  # doctest: +SKIP
    >>> model.fit(images, labels).score(test_images, test_labels)  # doctest: +SKIP
    >>> grid = {"twofold__batch_size": [64, 256], "twofold__augment__flip": [0, 0.5]}
    >>> search = GridSearchCV(model, grid).fit(images, labels)  # doctest: +SKIP
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
        **keys: Any,
    ):
        self.method = method
        self.epochs = epochs
        self.image_shape = image_shape
        self.overrides = overrides
        self.random_state = random_state
        self.out = out
        self.verbose = verbose
        self._set_keys(keys, method)

    # For `help` and for scikit-learn's checks. The parameters that every estimator has are those of `__init__`, from
    # which scikit-learn reads them.
    __signature__ = with_all_keys(inspect.signature(__init__))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of the signature, and all other settings that were given."""
        return super().get_params(deep) | self._given_keys()

    def set_params(self, **params: Any) -> Self:
        """Set parameters and any settings of a run, such as `set_params(epochs=20, augment__flip=0)`."""
        keys = {name: value for name, value in params.items() if name not in self._get_param_names()}
        self._set_keys(keys, params.get("method", self.method))
        return super().set_params(**{name: value for name, value in params.items() if name not in keys})

    def _given_keys(self) -> dict[str, Any]:
        """Return the settings that are not in the signature. They are the public attributes that `fit` does not set."""
        others = self._get_param_names()
        return {k: value for k, value in vars(self).items() if k not in others and k.strip("_") == k}

    def _set_keys(self, keys: Mapping[str, Any], method: Any) -> None:
        """Set the attributes for these settings, or raise an error if one is no key of any method.

        `fit` checks whether the estimator's own method has the key, because `set_params` may change the method later. A
        method that is given as `FILE.py:FUNCTION` is unknown until then, and so are its keys.
        """
        known = keys_of_all_methods() if keys else set()
        for name in keys:
            key = name.replace(DOT, ".")
            if key in SET_ELSEWHERE:
                raise InvalidInput(f"Twofold has no parameter '{name}': {SET_ELSEWHERE[key]}")
            if hasattr(type(self), name):
                raise InvalidInput(f"'{name}' is an attribute of the estimator: set this key with overrides")
            if "." in name or not (key in known or ":" in str(method)):
                advice = nearest_key(key, {*known, *self._get_param_names()}).replace(".", DOT)
                raise InvalidInput(f"Twofold has no parameter '{name}'{advice}")
        for name, value in keys.items():
            if value is ...:
                self.__dict__.pop(name, None)
            else:
                setattr(self, name, value)

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 — other steps of a pipeline use the labels
        """Train an encoder on all images. `y` is ignored."""
        checks: dict[str, Any] = {**ALLOWED, "ensure_min_samples": 2, "ensure_min_features": 2}
        X = check_array(as_array(X), **checks, estimator=self, input_name="X")
        with tempfile.TemporaryDirectory(prefix="twofold-") as aside, value_errors():
            method = find(name_of_method(str(self.method))).name
            if method == "supervised":
                raise TwofoldError(
                    "method='supervised' needs labels, and this estimator ignores y: "
                    "call twofold.pretrain((X, y), method='supervised')"
                )
            if self.overrides is not None and not isinstance(self.overrides, Mapping):
                raise TwofoldError(
                    f"overrides is a {type(self.overrides).__name__}: give a dict of settings, such as "
                    '{"batch_size": 128}'
                )
            for key, place in SET_ELSEWHERE.items():
                if key in (self.overrides or {}):
                    raise TwofoldError(f"overrides contains '{key}': leave it out, {place}")
            given = {name.replace(DOT, "."): value for name, value in self._given_keys().items()}
            for key in given.keys() & (self.overrides or {}).keys():
                raise TwofoldError(f"{key} is given twice: as a parameter and in overrides; leave one out")
            images = self._images(X)
            # All images are for training, and equal data give equal features, so nothing is held out or selected.
            exact = {"select": "last", "unlabelled_fraction": 0.0}
            keys = {**exact, "epochs": self.epochs, "seed": self._seed(), **(self.overrides or {}), **given}
            module = keys.pop("encoder", None)
            run = pretrain(
                {"data": images, **keys},
                method=method,
                encoder=copy.deepcopy(module),  # scikit-learn forbids that fit changes a parameter
                out=NumberedPath(Path(aside if self.out is None else self.out), method),
                quiet=not self.verbose,
            )
            own = copy.deepcopy(module) if isinstance(module, nn.Module) else None
            encoder = load_encoder(run, encoder=own)
            preprocess = preprocess_of(encoder)
            width = feature_dimension(encoder, preprocess.channels, preprocess.image_size)
            config, metrics = run.config, run.metrics
        # Set together at the end: if anything above fails, the state of an earlier fit stays intact.
        validate_data(self, X, skip_check_array=True)
        self.encoder_, self.config_, self.metrics_ = encoder, config, metrics
        self._shape_in, self._n_features_out = X.shape[1:], width
        self.__dict__.pop("run_", None)  # remove the run of an earlier fit
        if self.out is not None:
            self.run_ = run
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return the features of images, float32 `[n, K]`."""
        check_is_fitted(self)
        X = as_array(X)
        fitted_on_rows = len(self._shape_in) == 1
        if X.ndim == 2 and not fitted_on_rows and self.image_shape is None:
            raise InvalidInput(
                f"X has rows of {X.shape[1]} pixels, but the estimator was fitted on images of shape {self._shape_in}: "
                "give images, or set image_shape"
            )
        # Images may have another size than those of `fit`, since all are cropped and resized. Rows of pixels may not.
        of_one_length = X.ndim <= 2 and fitted_on_rows
        X = validate_data(self, X, reset=False, **ALLOWED) if of_one_length else check_array(X, **ALLOWED)
        with value_errors():
            pixels, *_ = from_arrays("X", self._images(X))
        preprocess = preprocess_of(self.encoder_)
        channels = {preprocess.channels, pixels.channels}
        if len(channels) > 1 and not channels <= {1, 3}:
            raise InvalidInput(
                f"X has images with {pixels.channels} channels, but the estimator was fitted on images with "
                f"{preprocess.channels}"
            )
        rows = np.arange(len(pixels))
        # Cropped and resized to uint8 as in training, so that an image always has the same features.
        decoded = pixels.decode(rows, preprocess.image_size, preprocess.channels, "", None)
        encoder = Encoder.on_device(
            self.encoder_, preprocess, choose_device(self.config_.device), self.config_.precision
        )
        features = encoder.features(ImageStore(readonly_tensor(decoded.images), None, torch.from_numpy(rows)))
        return features.cpu().numpy()

    def _images(self, X: np.ndarray) -> np.ndarray:
        """Return `X` as images, with rows of pixels reshaped."""
        if X.ndim > 2:
            return X
        side = math.isqrt(X.shape[1])
        shape = (side, side) if self.image_shape is None else checked_shape(self.image_shape)
        if math.prod(shape) != X.shape[1]:
            advice = "set image_shape" if self.image_shape is None else "change image_shape"
            raise TwofoldError(
                f"X has rows of {X.shape[1]} pixels, but an image of shape {shape} has {math.prod(shape)}: {advice}"
            )
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
    """Return `image_shape` as a tuple of two or three whole numbers."""
    try:
        shape = tuple(operator.index(side) for side in given)
    except TypeError:
        shape = ()
    if len(shape) not in (2, 3) or min(shape) < 1:
        raise TwofoldError(f"image_shape={given}: give (H, W), (H, W, C) or (C, H, W), such as (28, 28)")
    return shape


def as_array(X: Any) -> Any:
    """Return lists, such as lists of Pillow images, and tensors as arrays."""
    if hasattr(X, "ndim"):
        return to_numpy(X)
    if isinstance(X, (list, tuple)) and X and all(isinstance(item, Image.Image) for item in X):
        return stacked(X)
    if isinstance(X, (str, Path)) or (isinstance(X, (list, tuple)) and X and isinstance(X[0], (str, Path))):
        raise InvalidInput("X contains paths: give pixels, or use twofold.pretrain, which accepts paths")
    return np.asarray(X)


def stacked(pictures: Sequence[Image.Image]) -> np.ndarray:
    """Return Pillow images as uint8 `[n, H, W]` or `[n, H, W, 3]`, decoded like image files."""
    try:
        images = [to_grey_or_rgb(picture) for picture in pictures]
    except Unreadable as error:
        raise InvalidInput(f"an image in X cannot be used: {error}") from None
    sizes = sorted({image.size for image in images})
    if len(sizes) > 1:
        raise InvalidInput(
            f"X has images of different sizes, such as {sizes[0]} and {sizes[-1]}: resize them to one size"
        )
    mode = "L" if all(image.mode == "L" for image in images) else "RGB"
    return np.stack([np.asarray(image.convert(mode)) for image in images])


@contextmanager
def value_errors() -> Iterator[None]:
    """Turn errors of Twofold into `ValueError`, as scikit-learn expects."""
    try:
        yield
    except TwofoldError as error:
        raise InvalidInput(str(error)) from error
