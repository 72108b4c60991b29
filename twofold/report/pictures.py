"""The pictures of a report: map, nearest neighbours and augmented views.

They are created while images and encoder are loaded, and stored in the run folder as pictures.json. The report can then
be written again without images and encoder. Many small pictures are the tiles of one large picture, a sheet, which is
stored in a `data:` address.

Shapes: n pictures, C channels, H height, W width, S side of a tile.
"""

import base64
import io
import math
from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from twofold import counter
from twofold.config import Config
from twofold.config import load as load_config
from twofold.data.augment import Augmenter
from twofold.data.load import load_configured
from twofold.data.loader import BatchOrder
from twofold.data.resample import resize
from twofold.data.source import Data
from twofold.data.store import ImageStore
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.evaluate.encoder import Encoder, open_run_encoder
from twofold.evaluate.features import pixels
from twofold.evaluate.neighbours import nearest_rows, unit
from twofold.evaluate.projection import FEWEST_POINTS, project
from twofold.methods import schema_of_run
from twofold.report import gallery
from twofold.runs.folder import RunFolder
from twofold.runs.preprocess import preprocess_of
from twofold.runs.provenance import is_run_source, open_run_source
from twofold.train.setup import augmenter_of
from twofold.train.trainer import Trainer

BANK = 10_000  # number of images that are searched for neighbours
QUERIES, NEIGHBOURS = 12, 8
VIEWED = 6  # number of images whose views are shown
MAP_TILE, MANY_TILE, MANY = 48, 32, 2000  # side of a map tile in pixels; maps of more than MANY points use MANY_TILE
LARGE_TILE = 96
EXACT_BYTES = 2**20  # largest lossless sheet
MOST_BYTES = 3 * 2**20  # largest sheet: a page with two of them and the curves stays below 10 MB
GUTTER = 1
QUALITIES = (85, 70, 50, 30, 10)


class Sample:
    """Some images of both splits, in an order that depends only on their index in the source."""

    def __init__(self, data: Data, most: int) -> None:
        self.train, self.test = data.train, data.test
        stores = [store for store in (data.train, data.test) if store is not None]
        index = torch.cat([store.index.cpu() for store in stores])
        unknown = [torch.full((len(store),), -1) if store.labels is None else store.labels.cpu() for store in stores]
        # Rows of the training images, then of the test images.
        self.places = counter.permutation(counter.key(index, "report"))[:most]
        self.held_out = self.places >= len(data.train)
        self.index = index[self.places]
        self.labels = torch.cat(unknown)[self.places]
        self.side = max(data.train.images.shape[2:])
        self.names = [self._name(place) for place in self.places.tolist()]

    def __len__(self) -> int:
        return len(self.places)

    def _name(self, place: int) -> str | None:
        store, row = (self.train, place) if place < len(self.train) else (self.test, place - len(self.train))
        return None if store is None or store.files is None else store.files[row]

    def take(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        places, held = self.places[rows], self.held_out[rows]
        images = self.train.take(torch.where(held, 0, places))[0]
        if self.test is not None and held.any():
            images[held.to(images.device)] = self.test.take(places[held] - len(self.train))[0]
        return images, None

    def about(self, rows: Tensor) -> dict[str, list[Any]]:
        """Return index, split, label and file name of these images as columns; None where unknown."""
        labels = [None if label < 0 else label for label in self.labels[rows].tolist()]
        names = [self.names[row] for row in rows.tolist()]
        held_out = self.held_out[rows].int().tolist()
        return {"index": self.index[rows].tolist(), "held_out": held_out, "labels": labels, "names": names}


def record_trainer(folder: RunFolder, trainer: Trainer, encoder: nn.Module, display: Display) -> None:
    """Create and store the pictures of a run at the end of its training, with the features of the kept encoder."""
    augmenters = [augmenter for augmenter in (trainer.augment, trainer.small_crops) if augmenter is not None]
    points = trainer.config.map_points
    gallery.write_pictures(
        folder, gather_pictures(trainer.config, trainer.data, trainer.encoder(encoder), augmenters, points, display)
    )


def record_run(folder: RunFolder, points: int | None, display: Display, data: Any = None) -> None:
    """Create and store the pictures of a finished run again, from its encoder and its images.

    `data` is the new location of the images; by default they are where the run found them.
    """
    config = load_config(folder.config_text(), schema_of_run)
    source = open_run_source(folder.path, config, display.say, data)
    if data is not None and not is_run_source(folder.path, source):
        raise TwofoldError(f"{source.name} does not have the images that {folder.path} was trained on; give their path")
    encoder = open_run_encoder(folder.path, config, say=display.say)
    with display.stage("reading images", len(source)) as stage:
        images = load_configured(config, source, stage, pictures=True)
    preprocess = preprocess_of(encoder.network)
    try:
        augment = augmenter_of(config, preprocess.mean.cpu(), preprocess.std.cpu())
        augmenters = [augmenter for augmenter in (augment, augment.small_crops()) if augmenter is not None]
        if images.train.objects is not None:
            augmenters = [augmenter.for_several_images() for augmenter in augmenters]
    except TwofoldError as error:  # a transform of the user's own is not found
        display.say(f"the report shows no views: {error}")
        augmenters = []
    points = config.map_points if points is None else points
    gallery.write_pictures(folder, gather_pictures(config, images, encoder, augmenters, points, display))


def gather_pictures(
    config: Config, data: Data, encoder: Encoder, augmenters: Sequence[Augmenter], points: int, display: Display
) -> dict[str, Any]:
    sample = Sample(data, BANK)
    with display.stage("features for the report", len(sample)) as stage:
        features = encoder.features(sample, progress=stage)
    pictures = {
        "format": gallery.FORMAT,
        "classes": None if data.classes is None else list(data.classes),
        "channels": data.train.images.shape[1],
        "views": views_of(config, data.train, augmenters) if augmenters else None,
        "neighbours": neighbours_of(sample, features) if torch.isfinite(features).all() else None,
        "map": None,
    }
    points = min(points, len(sample))
    if points >= FEWEST_POINTS:
        with display.stage(f"map of {points:,} images", None):
            pictures["map"] = map_of(sample, features[:points], config.seed)
    return pictures


def views_of(config: Config, store: ImageStore, augmenters: Sequence[Augmenter]) -> dict[str, Any]:
    """Return images of the first step, each followed by the views that the network was trained on."""
    objects = store.objects
    index = (store.index if objects is None else store.index[objects.first]).to(store.images.device)
    order = BatchOrder(index, batch_size=config.batch_size, seed=config.seed, drop_last=config.drop_last)
    samples = order.rows(0)[:VIEWED]
    rows = own = samples
    if objects is not None:
        objects = objects.to(samples.device)
        rows = objects.first[samples]
        views = config.views + config.augment.local_views
        own = objects.choose(samples, index[samples], 0, config.seed, views).flatten()
    images = store.take(rows)[0]
    uncropped, sizes = store.take_crop_source(own)
    if objects is not None:
        uncropped = uncropped.unflatten(0, (len(samples), -1))
        sizes = None if sizes is None else sizes.unflatten(0, (len(samples), -1))
    device = augmenters[0].eval_transform.mean.device
    position, step = torch.arange(len(images), device=device), torch.zeros((), dtype=torch.int64, device=device)
    side = min(LARGE_TILE, augmenters[0].image_size)
    uncropped, sizes = uncropped.to(device), None if sizes is None else sizes.to(device)
    columns = [squares(images, side)]
    for augmenter in augmenters:
        for view in augmenter.pixels(uncropped, position, step, sizes).cpu():
            columns.append(squares((255 * view).round().to(torch.uint8), side))
    return {
        "images": len(images),
        "views": config.views,
        "small_crops": config.augment.local_views,
        "sheet": sheet(torch.stack(columns, dim=1).flatten(0, 1)),
    }


def neighbours_of(sample: Sample, features: Tensor) -> dict[str, Any]:
    """Return some images, each with the images of the sample that are most similar by their features."""
    queries, each = min(QUERIES, len(sample)), min(NEIGHBOURS, len(sample) - 1)
    similarity, found = others_nearest(features, queries, each)
    chosen = torch.cat([torch.arange(queries)[:, None], found], dim=1).flatten()
    values = torch.cat([torch.ones(queries, 1), similarity], dim=1).flatten()
    by_pixels = None
    if (sample.labels >= 0).all():
        _, alike = others_nearest(pixels(sample), queries, each)
        by_pixels = int((sample.labels[alike] == sample.labels[:queries, None]).sum())
    return {
        "among": len(sample),
        "each": each,
        "similarity": [round(value, 4) for value in values.tolist()],
        "agreeing_by_pixels": by_pixels,
        **sample.about(chosen),
        "sheet": sheet(squares(sample.take(chosen)[0], min(LARGE_TILE, sample.side))),
    }


def others_nearest(rows: Tensor, queries: int, each: int) -> tuple[Tensor, Tensor]:
    """Return, for each of the first `queries` rows, the most similar other rows: similarities and row numbers."""
    similarity, found = (part.cpu() for part in nearest_rows(unit(rows[:queries]), rows, each + 1, 4096))
    # Leave out the row itself. It need not come first, because others may equal it, and may even be missing.
    itself = found == torch.arange(queries)[:, None]
    itself[~itself.any(dim=1), -1] = True
    return similarity[~itself].view(queries, each), found[~itself].view(queries, each)


def map_of(sample: Sample, features: Tensor, seed: int) -> dict[str, Any] | None:
    projection = project(features, seed=seed)
    if projection is None:
        return None
    rows = torch.arange(len(features))
    side = min(MAP_TILE if len(features) <= MANY else MANY_TILE, sample.side)
    tiles = torch.cat([squares(sample.take(block)[0], side) for block in rows.split(512)])
    x, y = projection.points.T.tolist()
    return {
        "x": [round(value, 4) for value in x],
        "y": [round(value, 4) for value in y],
        "perplexity": projection.perplexity,
        "divergence": projection.divergence,
        **sample.about(rows),
        "sheet": sheet(tiles),
    }


def squares(pictures: Tensor, side: int) -> Tensor:
    """Resize pictures `[n, C, H, W]` to uint8 tiles `[n, 1 or 3, S, S]` on the CPU.

    Pictures with more than three channels keep the first three; pictures with two keep the first.
    """
    tiles = pictures[:, :3] if pictures.shape[1] >= 3 else pictures[:, :1]
    if tiles.shape[2:] != (side, side):
        tiles = resize(tiles, side).round().clamp(0, 255).to(torch.uint8)
    return tiles.cpu()


def sheet(tiles: Tensor) -> dict[str, Any]:
    """Arrange tiles `[n, 1 or 3, S, S]` in a nearly square sheet.

    The edge of each tile is repeated, GUTTER pixels wide. Without it, a browser that scales a tile to a fractional
    number of pixels would blend in pixels of the neighbouring tiles.
    """
    n, channels, side, _ = tiles.shape
    columns = math.ceil(math.sqrt(n))
    rows = math.ceil(n / columns)
    step = side + 2 * GUTTER
    blank = tiles.new_zeros(rows * columns - n, channels, side, side)
    framed = functional.pad(torch.cat([tiles, blank]).float(), (GUTTER,) * 4, mode="replicate").to(torch.uint8)
    grid = framed.view(rows, columns, channels, step, step)
    pixels = grid.permute(0, 3, 1, 4, 2).reshape(rows * step, columns * step, channels)
    picture = Image.fromarray(pixels.squeeze(-1).numpy())
    return {"side": side, "gutter": GUTTER, "columns": columns, "rows": rows, "address": _address(picture)}


def _address(picture: Image.Image) -> str:
    kind, content = "png", _encoded(picture, "PNG", optimize=True)
    if len(content) > EXACT_BYTES:
        for quality in QUALITIES:
            kind, content = "webp", _encoded(picture, "WEBP", quality=quality)
            if len(content) <= MOST_BYTES:
                break
    return f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"


def _encoded(picture: Image.Image, kind: str, **options: Any) -> bytes:
    target = io.BytesIO()
    picture.save(target, kind, **options)
    return target.getvalue()
