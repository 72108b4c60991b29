"""`pretrain`: resolve the configuration, open the data and train."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from twofold import dist
from twofold.config import RUN_KEYS, Config, Head, dump, flat
from twofold.config.resolve import default_image_size
from twofold.data.decode_options import DecodeOptions
from twofold.data.load import read_data
from twofold.data.open import open_source
from twofold.data.readers.arrays import is_array_splits
from twofold.data.readers.datasets import is_splits
from twofold.data.source import Source
from twofold.device import own_modes
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.evaluate.gain import LEAST_IMAGES
from twofold.evaluate.graph_features import with_graph_features
from twofold.methods.own_function import load_function, pass_function, reference_to, with_absolute_file
from twofold.methods.relations import SOURCES
from twofold.models import name_of
from twofold.models.blocks import has_new_batchnorm
from twofold.runs import initial_weights, provenance
from twofold.runs.folder import ReadOnlyRunFolder, RunFolder
from twofold.runs.new_folder import NumberedPath
from twofold.runs.own_input import OwnInput
from twofold.runs.run import Run
from twofold.text import plural, printable
from twofold.train.setup import refuse_unfit_normalisation, weights_from_images
from twofold.train.trainer import Trainer
from twofold.verbs.choose import resolve_config
from twofold.verbs.continued import initial_input, nearest_size, own_normalisation
from twofold.verbs.resume import continue_run
from twofold.verbs.settings import Asked, check_settings, is_named
from twofold.verbs.short_runs import is_short, may_be_short, short_settings, short_size
from twofold.verbs.training import announce, train_and_report

RUNS = Path("runs")
LEAST_UNLABELLED = 250  # images without labels; of fewer, none are held out, because training needs them all


def configure(
    data: Any = None,
    method: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    display: Display | None = None,
    minutes: float | None = None,
    module: nn.Module | None = None,
    for_use: bool = False,
) -> tuple[Config, Source]:
    """Resolve the configuration of a run and open its data.

    Parameters
    ----------
    data : optional
        The images, as for `pretrain`.
    method : str, optional
        The name of the method.
    overrides : Mapping, optional
        Settings by key, for example `{"batch_size": 128, "augment.flip": 0}`.
    display : Display, optional
        Where progress is printed.
    minutes : float, optional
        Approximate training time. Twofold times a few steps here and sets `epochs` accordingly.
    module : nn.Module, optional
        The user's own encoder. Unless `recipe` is set, it counts as pretrained, except if it has BatchNorm layers that
        never saw a batch.
    for_use : bool
        The run is for its encoder, not for a comparison of methods: keep the best encoder, hold out a few images if
        there are no labels, to judge whether training helped, use settings that suit a short run, and compute in
        bfloat16 if that is clearly faster on this CPU.

    Returns
    -------
    Config
        Each value comes from the highest layer that sets it: the user, the initial weights, values chosen from the
        images, the recipe for continued pretraining or for short runs, the data source, the method, the defaults.
    Source
        The opened data.
    """
    display = display or Display(quiet=True)
    has_weights = module is not None and not has_new_batchnorm(module)
    settings = check_settings(data, method, overrides or {}, minutes, module_has_weights=has_weights)
    asked = settings.config
    if asked.augment.transform is not None:
        load_function(asked.augment.transform, "augment.transform")  # an error comes before the images are read
    with dist.one_before_the_others(), display.stage("scanning images", 0) as stage:
        source = open_source(
            asked.data if is_named(data) else data,
            data_dir=asked.data_dir,
            download=asked.download,
            class_list=asked.class_list,
            progress=stage,
            decode=decode_options(settings),
        )
    layers, own = layers_of(settings, source, module, for_use=for_use)
    if for_use and minutes is not None and may_be_short(settings.config, has_weights):
        short = short_settings(settings, data, minutes)
        if short is not None and is_short(settings.keys, layers, source, minutes, module, display):
            settings = short
            layers, own = layers_of(settings, source, module, for_use=for_use)
            layers["chosen"] |= short_size(settings.keys, layers, source, minutes, module)
    may_shrink = own is not None and not own.has_fixed_size
    config = resolve_config(
        settings.keys,
        layers,
        source,
        minutes=minutes,
        display=display,
        module=module,
        may_shrink=may_shrink,
        may_use_bf16=for_use,
    )
    refuse_unfit_normalisation(config)
    return config, source


def decode_options(settings: Asked) -> DecodeOptions:
    """Return how image files are read. Unless the user set the range of pixels, it is chosen from the images."""
    options = DecodeOptions.of(settings.config)
    return options if "pixel_range" in settings.given else dataclasses.replace(options, pixel_range="auto")


def layers_of(
    settings: Asked, source: Source, module: nn.Module | None, *, for_use: bool
) -> tuple[dict[str, dict[str, Any]], OwnInput | None]:
    """Return the layers of a configuration, the weakest first, and the input that the encoder was made for."""
    given, keys, asked = settings.given, settings.keys, settings.config
    recipe = settings.method.recipe_for(asked.parameters)
    # Absolute paths, so that the run can be resumed from another working folder.
    located = {"data": source.location, "data_dir": str(Path(asked.data_dir).resolve())}
    for name in ("graph.source", "graph.encoder", "class_list"):
        if given.get(name) and Path(given[name]).exists() and given[name] not in SOURCES:
            located[name] = str(Path(given[name]).resolve())
    if asked.augment.transform is not None:
        located["augment.transform"] = with_absolute_file(asked.augment.transform)
    if asked.init is not None:
        located["init"] = initial_weights.with_absolute_path(asked.init)
    if asked.parameters.get("head", Head()).path is not None:
        located["head.path"] = str(Path(asked.parameters["head"].path).expanduser().resolve())
    # A source may suggest values for keys that only some methods have, such as the projector's widths. Those do not
    # apply to the user's own methods.
    kept = {*recipe, *keys.keys() - RUN_KEYS.keys()} if settings.method.family == "own" else set()
    suited = {name: value for name, value in source.defaults.items() if name in keys and name not in kept}
    sizes: dict[str, Any] = {"image_size": default_image_size(source.train.side), "channels": source.train.channels}
    if isinstance(source.decode.pixel_range, tuple):
        sizes["pixel_range"] = source.decode.pixel_range
    weights, own = initial_input(located.get("init"), module)
    if own is not None:
        weights |= own_normalisation(own, given.get("channels"))
        size = own.image_size if own.has_fixed_size else nearest_size(own.image_size, source.train.side)
        (weights if own.has_fixed_size else sizes)["image_size"] = size
    user = {name: located.pop(name, value) for name, value in given.items()}
    if for_use:
        sizes |= {"select": "best"} | unlabelled_hold_out(source, user)
    layers = {
        "method": dict(recipe),
        "data": suited,
        "recipe": kept_recipe(settings, suited),
        "chosen": sizes | located,
        "init": weights,
        "user": user,
    }
    return layers, own


def kept_recipe(settings: Asked, suited: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recipe of the run. In short runs, the augmentation that a data set recommends comes first."""
    recipe = dict(settings.recipe)
    if recipe.get("recipe") == "short" and any(name.startswith("augment.") for name in suited):
        recipe = {name: value for name, value in recipe.items() if not name.startswith("augment.")}
    return recipe


def unlabelled_hold_out(source: Source, user: Mapping[str, Any]) -> dict[str, float]:
    """Return which fraction to hold out if there are no labels: a tenth, but 50 to 1,000 images. Small sets lose none.

    Images are not held out either if the user set `test_fraction=0`.
    """
    images = len(source.train.readable())
    if source.labelled or source.test is not None or images < LEAST_UNLABELLED or user.get("test_fraction") == 0:
        return {}
    return {"unlabelled_fraction": min(max(0.1 * images, LEAST_IMAGES), 1000) / images}


def pretrain(
    config: Config | Mapping[str, Any] | Any = None,
    *,
    method: str | None = None,
    out: str | Path | NumberedPath | None = None,
    encoder: str | nn.Module | None = None,
    minutes: float | None = None,
    quiet: bool = True,
    **overrides: Any,
) -> Run:
    """Train an encoder on images without labels.

    Parameters
    ----------
    config : optional
        The data, or a mapping of settings, or a complete `Config`. By default, the data are `digits`. Data can be a
        path or a name, an array of images, a pair `(images, labels)`, or a PyTorch or Hugging Face Dataset. If there is
        a test set, pass a pair or a dict of two of these: the training data and the test data.
    method : str, optional
        The name of the method, by default `frossl`, `simclr` if the encoder starts from weights, and `s-diet` for short
        runs on a CPU.
        `twofold.methods()` lists all names.
    out : str or Path, optional
        The run folder to create, by default `runs/METHOD-DATA-NUMBER`.
    encoder : str or nn.Module, optional
        The name of an architecture, or any module that maps images `[N, C, H, W]` to features `[N, K]`. A module counts
        as pretrained: the run makes small changes of its weights and uses its own normalisation and image size, if it
        states them, or `mean`, `std` and `image_size`. Pass `recipe="scratch"` if its weights are new. Twofold sees
        this by itself if it has new BatchNorm layers.
    minutes : float, optional
        Approximate training time in minutes, instead of `epochs`. Twofold times a few steps and chooses the number of
        epochs. If there is time for fewer than 2,000 steps on a CPU, the run gets settings for short runs.
    quiet : bool
        Print nothing.
    **overrides
        Settings by key, with two underscores for a dot: `epochs=50, batch_size=128, augment__flip=0`.
        `augment__transform` may be a function.

    Returns
    -------
    Run
        The finished run: its results, metrics and paths.

    Examples
    --------
    >>> import twofold
    >>> run = twofold.pretrain("photos/", method="simclr", epochs=100)  # doctest: +SKIP
    >>> run.results["verdict"]["sentence"]  # doctest: +SKIP
    >>> encoder = twofold.load_encoder(run)  # doctest: +SKIP
    """
    keys = {name.replace("__", "."): value for name, value in overrides.items()}
    if isinstance(config, Config):
        keys = as_settings(config) | keys
    elif isinstance(config, Mapping) and not is_splits(config) and not is_array_splits(config):
        keys = dict(config) | keys
    elif config is not None:
        if "data" in keys:
            raise TwofoldError("the data is given twice: as the first argument and as data=; leave one out")
        keys["data"] = config
    if callable(keys.get("graph.source")):
        keys["graph.source"] = reference_to(keys["graph.source"], "graph.source")
    if callable(keys.get("augment.transform")):
        keys["augment.transform"] = pass_function(keys["augment.transform"])
    data = keys.pop("data", None)
    if encoder is not None:
        keys["encoder"] = name_of(encoder)
    module = encoder if isinstance(encoder, nn.Module) else None
    with dist.joined(), own_modes():
        display = Display(quiet=quiet or not dist.is_first())
        resolved, source = configure(data, method, keys, display, minutes, module, for_use=True)
        return start(resolved, source, out=out, display=display, encoder=module)


def as_settings(config: Config) -> dict[str, Any]:
    """Return all values of a configuration as settings, except those that are not decided yet (None)."""
    return {name: value for name, value in flat(config).items() if value is not None or name not in RUN_KEYS}


def start(
    config: Config,
    source: Source,
    *,
    out: str | Path | NumberedPath | None,
    display: Display,
    encoder: nn.Module | None = None,
) -> Run:
    """Train a configured run.

    The data is read and the parts are built before the first file is written, so an error leaves no files behind.
    """
    config, weights = with_weights(config)
    place = run_place(config, source, out)
    if dist.count() > 1 and dist.restarts() > 0:
        earlier = dist.from_first(lambda: earlier_attempt(config, place))
        if earlier is not None:
            return continue_run(Path(earlier), config, source, display, encoder)
    if isinstance(place, Path):
        dist.from_first(lambda: RunFolder.refuse_existing(place))
    data = with_graph_features(config, source, read_data(config, source, display, pictures=True), display)
    with display.stage("comparing patches of the images", 0):
        made = weights_from_images(config, data.train)
    trainer = Trainer(config, data, display, encoder, weights, made)
    trainer.rows.refuse_place()
    path = Path(dist.from_first(lambda: str(RunFolder.create(place, dump(config)).path)))
    folder = RunFolder(path) if dist.is_first() else ReadOnlyRunFolder(path)
    with folder.locked():
        copies = ""
        if dist.is_first():
            copies = provenance.record_trained_images(folder.path, source, config, data)
            own = None if encoder is None and made is None else trainer.untrained
            initial_weights.save_initial_weights(folder.path, weights, own)
        if data.skipped:
            folder.write(
                "skipped.txt", "".join(printable(f"{item.path}: {item.reason}") + "\n" for item in data.skipped)
            )
            display.say(f"{plural(len(data.skipped), 'image')} could not be read: see {folder.path / 'skipped.txt'}")
        announce(trainer, folder, display, source.remark, copies)
        return train_and_report(trainer, folder, display)


def with_weights(config: Config) -> tuple[Config, dict[str, Tensor] | None]:
    """Read the weights that `init` names. The returned configuration has their fingerprint."""
    if config.init is None:
        return config, None
    assert config.channels is not None
    assert config.image_size is not None
    init, weights = initial_weights.read_weights(config.init, channels=config.channels, image_size=config.image_size)
    return dataclasses.replace(config, init=init), weights


def run_place(config: Config, source: Source, out: str | Path | NumberedPath | None) -> Path | NumberedPath:
    """Return the path of the run folder, or the name that gets the next free number."""
    if out is None:
        return NumberedPath(RUNS, f"{config.method}-{source.name}")
    return out if isinstance(out, NumberedPath) else Path(out)


def earlier_attempt(config: Config, place: Path | NumberedPath) -> str | None:
    """Return the folder of the same run before torchrun restarted its processes, or None."""
    runs = place.existing_runs() if isinstance(place, NumberedPath) else [place]
    known = (path for path in runs if (path / "config.json").exists())
    return next((str(path) for path in known if RunFolder(path).config_text() == dump(config)), None)
