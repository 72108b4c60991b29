"""`predict`: the class of each image by a saved classifier, its probability, and the nearest labelled image."""

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from twofold.data.decode import decode_image
from twofold.data.decode_options import Unreadable
from twofold.data.image_formats import extensions
from twofold.data.load import load_data
from twofold.data.open import open_source
from twofold.device import choose_device
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.evaluate.encoder import Encoder
from twofold.evaluate.neighbours import nearest_rows, unit
from twofold.files import atomic, refuse_unwritable, writing
from twofold.runs.classifier_file import classifier_file, load_classifier
from twofold.runs.preprocess import Preprocess, preprocess_of
from twofold.runs.run import Run
from twofold.text import plural
from twofold.verbs.all_images import AllImages

BLOCK = 4096  # images that are compared with the labelled images at a time


@dataclass(frozen=True)
class Prediction:
    """The class of an image."""

    file: str  # the name of the file, or "" if there is none
    index: int  # the number of the image in the source
    predicted: str  # the most likely class
    probability: float
    nearest: str  # the most similar labelled image
    nearest_class: str
    similarity: float  # the cosine similarity to that image


def predict(
    model: str | Path | Run,
    data: Any,
    out: str | Path | None = None,
    *,
    encoder: nn.Module | None = None,
    display: Display | None = None,
) -> list[Prediction]:
    """Predict the classes of images.

    Parameters
    ----------
    model : str, Path or Run
        A file that `probe(run, classifier=FILE)` wrote, or a run folder with the file `classifier.safetensors`, which a
        run of the method `supervised` writes at its end.
    data
        The images, in any form that `pretrain` accepts, or the path of one image file.
    out : str or Path, optional
        The .csv file to write, with one line for each image.
    encoder : nn.Module, optional
        A module of the same class, if the run trained your own module.
    display : Display, optional
        Where progress is printed. By default nothing is printed.

    Returns
    -------
    list of Prediction
        The predictions, in the order of the images in their source.

    Examples
    --------
    >>> twofold.probe("runs/frossl-photos-1", "labelled/", classifier="classifier.safetensors")  # doctest: +SKIP
    >>> predictions = twofold.predict("classifier.safetensors", "new/", "table.csv")  # doctest: +SKIP
    >>> predictions[0].predicted, predictions[0].probability  # doctest: +SKIP
    ('cat', 0.97)
    """
    display = display or Display(quiet=True)
    if out is not None:
        out = Path(out)
        if out.suffix != ".csv":
            raise TwofoldError(f"--out {out}: give a .csv file")
        refuse_unwritable(out)
    saved = load_classifier(classifier_file(model), encoder)
    preprocess = preprocess_of(saved.network.encoder)
    images, files = images_to_classify(data, preprocess, display)
    device = choose_device("auto")
    opened = Encoder.on_device(saved.network.encoder, preprocess, device, "float32")
    opened = replace(opened, views=int(saved.description.get("views", 1)))
    with display.stage("computing features", len(images)) as stage:
        features = opened.features(images, progress=stage).to(device)
    probabilities = saved.network.to(device).probabilities(features)
    probability, predicted = probabilities.max(dim=1)
    labelled = saved.labelled.features.to(device).float()
    similarity, nearest = nearest_rows(unit(features), labelled, 1, BLOCK)
    classes, names, labels = saved.classes, saved.labelled.names, saved.labelled.labels.tolist()
    found = [
        Prediction(file, index, classes[label], share, names[row], classes[labels[row]], min(max(cosine, -1.0), 1.0))
        for file, index, label, share, row, cosine in zip(
            files,
            images.index.tolist(),
            predicted.tolist(),
            probability.tolist(),
            nearest[:, 0].tolist(),
            similarity[:, 0].tolist(),
            strict=True,
        )
    ]
    if out is not None:
        write_predictions(out, found)
    return found


def images_to_classify(data: Any, preprocess: Preprocess, display: Display) -> tuple[AllImages, Sequence[str]]:
    """Read all images of a source, or a single file. Return them and the names of their files."""
    single = None
    if isinstance(data, (str, Path)) and Path(data).suffix.lower() in extensions() and Path(data).is_file():
        single = str(data)
        try:
            pixels = decode_image(Path(data), preprocess.image_size, preprocess.channels, preprocess.decode)
        except Unreadable as error:
            raise TwofoldError(f"{data} cannot be read: {error}; pass the path of an image file") from None
        data = torch.from_numpy(pixels).permute(1, 2, 0)[None].numpy()
    with display.stage("scanning images", 0) as stage:
        source = open_source(data, progress=stage, to_train=False, decode=preprocess.decode)
    with display.stage("reading images", len(source)) as stage:
        read = load_data(
            source,
            image_size=preprocess.image_size,
            channels=preprocess.channels,
            test_fraction=0.0,
            progress=stage,
            rest=True,
        )
    if read.skipped:
        first = read.skipped[0]
        display.say(
            f"skipped {plural(len(read.skipped), 'image')} that could not be read; the first is {first.path}: "
            f"{first.reason}"
        )
    images = AllImages(read)
    files = [single] if single is not None else images.catalogue.files
    return images, [""] * len(images) if files is None else files


def write_predictions(out: Path, predictions: list[Prediction]) -> None:
    """Write one line for each prediction. `class` is the name of the column of predicted classes."""
    heading = ["class" if field.name == "predicted" else field.name for field in fields(Prediction)]
    with (
        writing(out),
        atomic(out, durable=False) as aside,
        # File names may have bytes that are not UTF-8.
        aside.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(heading)
        for each in predictions:
            row = asdict(each) | {"probability": f"{each.probability:.6f}", "similarity": f"{each.similarity:.5f}"}
            writer.writerow(row.values())
