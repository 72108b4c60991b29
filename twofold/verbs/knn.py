"""`twofold knn` and `twofold.knn`: the accuracy of a kNN classifier on frozen features."""

import dataclasses
from typing import Any

from torch import Tensor, nn

from twofold.display import Display
from twofold.evaluate.opened import What
from twofold.evaluate.probes import Scores, knn_ranked, scores
from twofold.keys import Count, Positive, checked
from twofold.verbs.probing import load_probe_data, measure_all, with_description


def knn(
    run: What,
    data: Any = None,
    *,
    k: int = 20,
    temperature: float = 0.07,
    layer: str = "pre",
    encoder: str | nn.Module | None = None,
    image_size: int | None = None,
    adapter: bool = True,
    views: int = 1,
    display: Display | None = None,
) -> dict[str, Any]:
    """Classify images by a vote of their nearest training images, and compare with features without training.

    A neighbour with cosine similarity `s` has a vote of weight `exp(s / temperature)`.

    Parameters
    ----------
    run : str, Path, Run or nn.Module
        The encoder: a run, a folder that `adapt` wrote, a .safetensors or .onnx file, `efficientnet-lite0` or
        `timm:NAME` with pretrained weights, or a module.
    data : optional
        Labelled images, in any form that `pretrain` accepts. By default, the run's own images. Other encoders need
        them; if there is no test set, Twofold holds out a fifth of each class.
    k : int
        The number of neighbours that vote.
    temperature : float
        The temperature of the votes.
    layer : {"pre", "post"}
        Measure the encoder's features (`pre`) or the projector's output (`post`).
    encoder : str or nn.Module, optional
        For a .safetensors file that Twofold did not write: the name of its architecture. For a run that trained your
        own module: a module of the same class.
    image_size : int, optional
        The size of the images, for an encoder that does not state its own, and for `efficientnet-lite0` or `timm:NAME`.
    adapter : bool
        Apply the adapter that `adapt` wrote, if there is one. The row "trained + adapter" then comes first.
    views : int
        1, or 5 to average the features of each image and of four crops of it. This takes five times as long.
    display : Display, optional
        Where progress is printed. By default nothing is printed.

    Returns
    -------
    dict
        `rows` has a dict for each of trained + adapter (if there is one), trained, untrained, HOG + colour and raw
        pixels: `name`, `top1`, `top5`, `per_class` and `confusion`. The other entries describe the images and the
        settings.

    Examples
    --------
    >>> found = twofold.knn("runs/frossl-photos-1", k=5)  # doctest: +SKIP
    >>> {row["name"]: row["top1"] for row in found["rows"]}  # doctest: +SKIP
    """
    k, temperature = checked("k", k, Count), checked("temperature", temperature, Positive)
    display = display or Display(quiet=True)
    probed = load_probe_data(run, data, layer, encoder, display, image_size=image_size, adapter=adapter, views=views)
    splits = probed.splits

    def measure(train: Tensor, test: Tensor) -> dict[str, Any]:
        named = knn_ranked(train, splits.train_labels, test, k=k, temperature=temperature)
        found: Scores = scores(named, splits.test_labels, classes=len(splits.classes))
        return dataclasses.asdict(found)

    measured = measure_all(probed, "finding neighbours", measure, display)
    return {"k": k, "temperature": temperature} | with_description(run, probed, layer, measured)
