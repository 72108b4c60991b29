"""`adapt`: fit a linear map of a pretrained encoder's features to images, without training."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from twofold.config import Config, Graph
from twofold.data.augment import Augmenter
from twofold.data.load import load_data
from twofold.data.open import open_source
from twofold.data.source import Data, Source
from twofold.data.store import ImageStore
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.evaluate.adaptation import AUTO, MOST_IMAGES, Adaptation, fit_adapter, mild_views
from twofold.evaluate.encoder import Encoder, open_encoder, refuse_other
from twofold.evaluate.features import check_views
from twofold.evaluate.graph_features import add_graph_features
from twofold.evaluate.opened import TEST_FRACTION, describe_encoder, folder_of
from twofold.evaluate.probes import Row, labelled_splits, measure_accuracies
from twofold.keys import Count, checked
from twofold.methods.own_function import reference_to
from twofold.methods.relations import group_numbers, sample_graph
from twofold.runs.folder import adapter_file
from twofold.runs.preprocess import Preprocess
from twofold.runs.provenance import open_run_source
from twofold.runs.run import Run, config_of, refuse_unusable_folder, write_encoder_folder
from twofold.runs.weights import ENCODER_FILE, encoder_file


@dataclass(frozen=True, eq=False)
class Adapted:
    """The result of `adapt`.

    Attributes
    ----------
    path : Path
        The folder with `encoder.safetensors` and, if a map was better than the features as they are,
        `adapter.safetensors`. `load_encoder` and all verbs accept it.
    adaptation : Adaptation
        The map, the scores and the reason for the choice.
    rows : list of Row
        With labels: accuracies on held-out images without and with the adapter.
    """

    path: Path
    adaptation: Adaptation
    rows: list[Row]

    def __fspath__(self) -> str:
        return str(self.path)


def adapt(
    what: str | Path | Run | nn.Module,
    data: Any = None,
    *,
    out: str | Path | None = None,
    graph: str | Callable[[Tensor], Tensor] = "views",
    graph_encoder: str | None = None,
    variant: str = AUTO,
    images: int = MOST_IMAGES,
    flip: bool | None = None,
    views: int = 1,
    overwrite: bool = False,
    encoder: str | nn.Module | None = None,
    image_size: int | None = None,
    display: Display | None = None,
) -> Adapted:
    """Adapt a pretrained encoder to images with a linear map of its features, in closed form and without labels.

    The map makes the features vary equally in all directions between the views of one image. Twofold chooses its
    strength on held-out images, and writes no map if none is better. The encoder's weights do not change.

    Parameters
    ----------
    what : str, Path, Run or nn.Module
        The encoder: a run, a folder that `adapt` wrote, a .safetensors or .onnx file, `efficientnet-lite0` or
        `timm:NAME` with pretrained weights, or a module.
    data : optional
        The images, in any form that `pretrain` accepts. A run uses its own training images by default.
    out : str or Path, optional
        The folder to write, for an encoder that is not in a run folder.
    graph : str or callable
        Which images are related: `views` (only the views of one image), `labels`, `groups`, `neighbours`, `duplicates`,
        a file of groups or of weighted pairs, or a function from indices `[N]` to weights `[N, N]`.
    graph_encoder : str, optional
        The encoder by whose features `neighbours` are found, in any form that has a name; by default, by pixels.
    variant : str
        `auto`: whitening within images, or none. Or a map that is kept even if it is not better: `within`, `whitening`,
        `ridge` or `threshold`.
    images : int
        The largest number of images to use.
    flip : bool, optional
        Whether views are flipped. By default they are, unless the run or the named dataset excludes flips.
    views : int
        5 also measures the mean of the features of each image and of four crops of it, without and with the adapter.
    overwrite : bool
        Replace an adapter that exists already.
    encoder : str or nn.Module, optional
        For a .safetensors file that Twofold did not write: the name of its architecture. For an encoder that is your
        own module: a module of the same class.
    image_size : int, optional
        The size of the input, for efficientnet-lite0, and for a module or file without preprocessing.
    display : Display, optional
        Where progress is printed. By default nothing is printed.

    Returns
    -------
    Adapted
        With the attributes `path`, `adaptation` and `rows`.

    Examples
    --------
    >>> adapted = twofold.adapt("timm:resnet18.a1_in1k", "photos/", out="adapted")  # doctest: +SKIP
    >>> encoder = twofold.load_encoder(adapted)  # doctest: +SKIP
    """
    display = display or Display(quiet=True)
    what = what.path if isinstance(what, Run) else what
    refuse_other(what)
    relations = _checked_graph(graph, graph_encoder)
    checked("images", images, Count)
    check_views(views)
    target = _target(what, None if out is None else Path(out), overwrite)
    source, config = _open_images(what, data, display)
    opened = open_encoder(what, lambda: source, module=encoder, image_size=image_size, adapter=False)
    read = _read_images(opened, source, config, relations, display)
    augment = mild_views(opened, flip=0.5 if _flips(flip, source, config) else 0.0)
    adaptation = _fit_on_graph(opened, read.train, augment, relations, variant, images, display)
    if target is None:
        assert out is not None
        target = _write_folder(Path(out), what, opened, encoder, source, config)
    adaptation.save(target, opened.network, data=source.location, graph=relations.source)
    return Adapted(target.parent, adaptation, _accuracies(opened, adaptation, read, views, display))


def _checked_graph(graph: str | Callable[[Tensor], Tensor], encoder: str | None) -> Graph:
    """Return the section of the configuration that states the graph and the encoder that finds neighbours."""
    source = reference_to(graph, "graph") if callable(graph) else graph
    if source == "teacher":
        raise TwofoldError("graph=teacher is for training: use graph=neighbours and the teacher as graph_encoder")
    if encoder is not None and source != "neighbours":
        raise TwofoldError(f"graph_encoder has no effect with graph={source}: leave it out, or use graph=neighbours")
    return Graph(source=source, encoder=encoder)


def _fit_on_graph(
    opened: Encoder,
    train: ImageStore,
    augment: Augmenter,
    graph: Graph,
    variant: str,
    most_images: int,
    display: Display,
) -> Adaptation:
    """Return the map that `fit_adapter` chooses on the training images, which the graph relates."""
    related = _pairs_of(graph, train)
    groups = None if graph.source == "views" or related else group_numbers(graph, train)
    with display.stage("features of views", len(train)) as stage:
        return fit_adapter(
            opened,
            train.place(opened.device),
            augment,
            variant=variant,
            groups=groups,
            whole_groups=graph.source not in ("views", "labels"),
            related=related,
            most_images=most_images,
            progress=stage,
        )


def _write_folder(
    out: Path,
    what: str | Path | nn.Module,
    opened: Encoder,
    encoder: str | nn.Module | None,
    source: Source,
    config: Config | None,
) -> Path:
    """Write a folder with the encoder and its description, and return the file of the encoder."""
    description = describe_encoder(what, opened, encoder) | {
        "data": source.location,
        "data_dir": "data" if config is None else config.data_dir,
        "test_fraction": TEST_FRACTION,
    }
    return write_encoder_folder(out, opened.network, description)


def _target(what: str | Path | nn.Module, out: Path | None, overwrite: bool) -> Path | None:
    """Return the file of the encoder next to which the adapter is written, or None if a new folder is needed."""
    if out is not None:
        refuse_unusable_folder(out)
        return None
    folder = folder_of(what)
    if folder is None:
        raise TwofoldError("this encoder is not in a run folder: pass --out FOLDER, the folder to write")
    path = adapter_file(encoder_file(folder))
    if path.exists() and not overwrite:
        raise TwofoldError(f"{path} exists already: replace it with --overwrite, or write elsewhere with --out FOLDER")
    return folder / ENCODER_FILE


def _open_images(what: str | Path | nn.Module, data: Any, display: Display) -> tuple[Source, Config | None]:
    """Return the images, and the configuration of a run or folder. A run's held-out images stay held out."""
    path = folder_of(what)
    if path is not None:
        config = config_of(path)
        return open_run_source(path, config, display.say, data), config
    if data is None:
        raise TwofoldError("give DATA, the images that the encoder is adapted to")
    return open_source(data), None


def _read_images(encoder: Encoder, source: Source, config: Config | None, graph: Graph, display: Display) -> Data:
    """Return the images at the encoder's size, with the features that the graph needs, if any."""
    preprocess = encoder.preprocess
    assert isinstance(preprocess, Preprocess)
    test_fraction = TEST_FRACTION if config is None else config.test_fraction
    with display.stage("reading images", len(source)) as stage:
        read = load_data(
            source,
            image_size=preprocess.image_size,
            channels=preprocess.channels,
            test_fraction=test_fraction,
            progress=stage,
        )
    read = replace(read, train=replace(read.train, objects=None))  # each image is a sample here
    return add_graph_features(graph, source, read, (test_fraction, 0.0), display)


def _pairs_of(graph: Graph, train: ImageStore) -> Callable[[Tensor], Tensor] | None:
    """Return a graph that is not a set of groups: row numbers [N] → weights [N, N]; None for a set of groups."""
    related = sample_graph(graph, train)
    return None if related is None else lambda rows: related(train.index[rows])


def _flips(flip: bool | None, source: Source, config: Config | None) -> bool:
    """Return whether views are flipped: as the user says, else as in the run, else as suits the data."""
    if flip is not None:
        return flip
    chance = source.defaults.get("augment.flip", 0.5)
    if config is not None and "augment.flip" in config.origin:
        chance = config.augment.flip
    return any(chance) if isinstance(chance, tuple) else chance > 0


def _accuracies(opened: Encoder, adaptation: Adaptation, read: Data, views: int, display: Display) -> list[Row]:
    """Return accuracies on held-out images without and with the adapter; none without labels."""
    splits = labelled_splits(read)
    if splits is None:
        return []
    found = {}
    for count in dict.fromkeys((1, views)):
        encoder, both = replace(opened, views=count), []
        of_views = f", {count} views" if count > 1 else ""
        for name, store in (("training", splits.train), ("held-out", splits.test)):
            with display.stage(f"features of {name} images{of_views}", len(store)) as stage:
                both.append(encoder.features(store.place(opened.device), progress=stage))
        found[f"as it is{of_views}"] = both[0], both[1]
        if adaptation.adapter is not None:
            adapter = adaptation.adapter.to(opened.device)
            found[f"with adapter{of_views}"] = (
                adapter(both[0].to(opened.device)),
                adapter(both[1].to(opened.device)),
            )
    with display.stage("training classifiers", None):
        measured = measure_accuracies(found, splits.train_labels, splits.test_labels, classes=len(splits.classes))
    return [each.row for each in measured]
