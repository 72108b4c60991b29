"""Builds the parts of a run from its configuration, and checks them before the first file is written.

`Trainer.__init__` calls these functions in this order. If a run does not need a part, it gets one that does nothing
(`NoExchange`, `NoRows`), so that the training step has no special cases.
"""

import copy
import dataclasses
import functools
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from twofold import dist
from twofold.config import Config
from twofold.cuda.bf16_weights import Bf16Weights, NoCopies
from twofold.cuda.streams import NoStreams, Streams
from twofold.data.augment import Augmenter
from twofold.data.loader import BatchOrder, Loader
from twofold.data.own_transform import CHECKED, OwnTransform, without_operations
from twofold.data.source import Data
from twofold.data.store import LEAST_STD, ImageStore
from twofold.device import own_modes
from twofold.errors import TwofoldError
from twofold.methods import Method, Parts, find
from twofold.methods.own_function import load_function
from twofold.models import BatchRows, build_encoder, feature_dimension
from twofold.models.blocks import freeze_parameters
from twofold.models.encoders import MADE, PATCH_CONV
from twofold.models.patches import PatchFeatures
from twofold.randomness import seeded
from twofold.runs import initial_weights
from twofold.runs.preprocess import Preprocess
from twofold.text import plural
from twofold.train.exchange import Exchange, NoExchange, Shares
from twofold.train.guards import memory_errors
from twofold.train.micro_batches import Forward, MicroBatches, OnEmbeddings, WholeBatch
from twofold.train.observers import Observers
from twofold.train.sample_rows import NoRows, SampleRows
from twofold.train.watch import Watch


def place(data: Data, device: torch.device) -> Data:
    """The images on the device, if they fit there."""
    test = None if data.test is None else data.test.place(device)
    return dataclasses.replace(data, train=data.train.place(device), test=test)


def shares_of(config: Config) -> Shares:
    """A function from a batch size to the share of each process."""
    return functools.cache(functools.partial(dist.Shares, pieces=config.pieces))


def build_loader(config: Config, images: ImageStore, shares: Shares) -> Loader:
    return Loader(
        images,
        batch_size=config.batch_size,
        seed=config.seed,
        drop_last=config.drop_last,
        share=None if dist.count() == 1 else lambda size, device: shares(size, device).own,
        views=config.views + config.augment.local_views,
    )


def build_augmenters(config: Config, images: ImageStore, device: torch.device) -> tuple[Augmenter, Augmenter | None]:
    """The augmenters of the views and of small crops (None if there are none)."""
    mean, std = normalisation(config, images)
    augment = augmenter_of(config, mean, std).to(device)
    if augment.own is not None:
        rows = torch.arange(min(CHECKED, len(images)))
        some, sizes = images.take_crop_source(rows)
        position, step = rows.to(device), torch.zeros((), dtype=torch.int64, device=device)
        made = augment.built_in(some.to(device), position, step, None if sizes is None else sizes.to(device))
        augment.own.check(made, config.seed, position)
    crops = augment.small_crops()
    if device.type == "cpu":
        augment, crops = augment.for_cpu(), None if crops is None else crops.for_cpu()
    if images.objects is not None:
        augment, crops = augment.for_several_images(), None if crops is None else crops.for_several_images()
    return augment, crops


def augmenter_of(config: Config, mean: Tensor, std: Tensor) -> Augmenter:
    """The augmenter of the views, with the transform of the user's own if there is one."""
    assert config.image_size is not None
    augment, name = config.augment, config.augment.transform
    if name is not None and augment.transform_mode == "instead":
        augment = without_operations(augment)
    own = None if name is None else OwnTransform(load_function(name, "augment.transform"), name)
    return Augmenter(
        augment, views=config.views, image_size=config.image_size, mean=mean, std=std, seed=config.seed, own=own
    )


def normalisation(config: Config, images: ImageStore) -> tuple[Tensor, Tensor]:
    """The mean and the standard deviation [C] that images are normalised with: those of the keys, or of the images."""
    found = images.statistics()
    refuse_blank(found[1])
    if config.mean is None or config.std is None:
        return found
    refuse_unfit_normalisation(config)
    mean, std = (torch.tensor(values, dtype=torch.float64) for values in (config.mean, config.std))
    return mean, std


def refuse_unfit_normalisation(config: Config) -> None:
    """Raise an error if there is not one mean for each channel."""
    if config.mean is not None and len(config.mean) != config.channels:
        raise TwofoldError(
            f"mean has {plural(len(config.mean), 'value')} for {plural(config.channels or 0, 'channel')}: set mean and "
            "std to one value for each channel, or change channels"
        )


def refuse_blank(std: Tensor) -> None:
    """Raise an error if the standard deviation of the pixels is 0."""
    if (std <= LEAST_STD).all():
        raise TwofoldError(
            "all pixels of all images are equal, so there is nothing to learn: check the range of the pixels, which is "
            "0 to 1 for floats and 0 to 65535 for 16 bits"
        )


def weights_from_images(config: Config, images: ImageStore) -> dict[str, Tensor] | None:
    """The weights of the encoder that are made from the training images, or None if it has none."""
    if config.encoder != PATCH_CONV:
        return None
    assert config.image_size is not None
    channels = images.images.shape[1]
    mean, std = normalisation(config, images)
    with memory_errors():
        patches = PatchFeatures(channels, config.image_size)
        transform = Preprocess(config.image_size, channels, mean.tolist(), std.tolist())
        patches.fit(images.images, transform, seed=config.seed)
    return {f"{MADE}{name}": value for name, value in patches.state_dict().items()}


def build_method(
    config: Config,
    images: ImageStore,
    encoder: nn.Module | None = None,
    weights: Mapping[str, Tensor] | None = None,
    made: Mapping[str, Tensor] | None = None,
) -> tuple[Method, int, nn.Module]:
    """The method, the width of its features, and a copy of its encoder before `weights` are loaded.

    The initial weights depend only on the seed, on `weights`, and on `made`, the weights from `weights_from_images`.
    """
    assert config.image_size is not None
    channels = images.images.shape[1]
    if torch.get_default_dtype() != torch.float32:
        raise TwofoldError(
            f"the default dtype of torch is {torch.get_default_dtype()}, but Twofold trains in float32: call "
            "torch.set_default_dtype(torch.float32) first"
        )
    if encoder is not None:
        refuse_untrainable(encoder)
    with seeded(config.seed), memory_errors():
        network = encoder
        if network is None:
            network = build_encoder(config.encoder, channels=channels, stem=config.stem, image_size=config.image_size)
        if made is not None:
            network.load_state_dict(made, strict=False)
        features = feature_dimension(network, channels, config.image_size)
        if encoder is not None:
            refuse_unfit_features(encoder, channels, config.image_size)
        untrained = copy.deepcopy(network)
        if weights is not None:
            initial_weights.load_into(network, weights, str(config.init))
        freeze_parameters(network, config.freeze, config.freeze_batchnorm)
        parts = Parts(network, features, images.samples(), config.epochs, config.views, config.augment.local_views)
        method = find(config.method).build(parts, **config.parameters)
    if not isinstance(method, Method):
        raise TwofoldError(f"{config.method}'s function returns a {type(method).__name__}: return Method(parts, …)")
    return method, features, untrained


def refuse_untrainable(encoder: nn.Module) -> None:
    """Raise an error if a user's encoder has no weights to train, or weights of another type than float32."""
    parameters = list(encoder.parameters())
    if not any(parameter.requires_grad for parameter in parameters):
        raise TwofoldError("the encoder has no weights to train: set requires_grad=True for some")
    others = {parameter.dtype for parameter in parameters if parameter.is_floating_point()} - {torch.float32}
    if others:
        raise TwofoldError(
            f"the encoder has weights of {others.pop()}: pass encoder.float(), and set precision for fewer bits"
        )


def refuse_unfit_features(encoder: nn.Module, channels: int, image_size: int) -> None:
    """Raise an error if a user's encoder returns features that are not float32, or that have no gradient."""
    if torch.is_inference_mode_enabled():
        return  # the caller reads a run and does not train
    if any(tensor.is_inference() for tensor in (*encoder.parameters(), *encoder.buffers())):
        raise TwofoldError("the encoder was built in torch.inference_mode() and cannot be trained: build it outside")
    network = copy.deepcopy(encoder)  # the copy keeps the running statistics of the encoder unchanged
    blank = torch.zeros(2, channels, image_size, image_size, device=next(network.parameters()).device)
    with own_modes(), torch.enable_grad():
        features = network.eval()(blank)
        # Some encoders have gradients in training mode only.
        learns = features.requires_grad or network.train()(blank).requires_grad
    if features.dtype != torch.float32:
        raise TwofoldError(f"the encoder returns {features.dtype} features: return features.float()")
    if not learns:
        raise TwofoldError(
            "the encoder's features have no gradient, so it cannot learn: look for no_grad() or detach() in its forward"
        )


def build_rows(config: Config, method: Method, order: BatchOrder) -> SampleRows | NoRows:
    """The rows of a per-image classifier, which are outside the network."""
    return SampleRows(config, method.head, order.on_host()) if isinstance(method.head, BatchRows) else NoRows()


def build_observers(
    config: Config, data: Data, method: Method, features: int, width: int, device: torch.device
) -> Observers:
    classes = len(data.classes) if data.classes is not None and data.train.labels is not None else None
    return Observers(features, width, classes, config.online_lr, device, predictor=method.predictor is not None)


def build_watch(config: Config, data: Data, method: Method) -> Watch:
    held_out = None if data.test is None or data.test.labels is None else data.test.labels_known
    return Watch(method=config.method, few_dimensions=method.few_dimensions, guess=method.guess, held_out=held_out)


def build_exchange(config: Config, method: Method, shares: Shares, observers: Observers) -> Exchange | NoExchange:
    if dist.count() == 1:
        return NoExchange(method)
    return Exchange(method, shares, config.batch_size, config.views, observers)


def build_flow(
    config: Config,
    method: Method,
    forward: Forward,
    prepare: OnEmbeddings,
    weight_copies: Bf16Weights | NoCopies,
    streams: Streams | NoStreams,
    memory_format: torch.memory_format,
) -> WholeBatch | MicroBatches:
    """How a batch passes through the networks. Several processes prepare the method after they gather z."""
    alone = dist.count() == 1
    if config.pieces > 1:
        prepare = method.prepare  # no teacher pass is left that it could overlap with
        return MicroBatches(
            config.pieces,
            forward,
            method.trained_networks(),
            memory_format,
            prepare if alone else None,
            weight_copies.collect_gradients,
        )
    # A fused optimizer reads gradients where they are, but their total norm needs them in one place.
    after_backward: Callable[[], None] = weight_copies.collect_gradients if config.clip > 0 else lambda: None
    return WholeBatch(forward, prepare if alone else None, streams, after_backward)
