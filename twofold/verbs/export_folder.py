"""Export an encoder as a folder to share: weights, adapter, preprocessing, model card and map.

The folder has the form of those that `adapt` writes, so whatever accepts these accepts it.
"""

import copy
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.evaluate.opened import TEST_FRACTION, Opened, What, describe_encoder, open_any
from twofold.files import write_atomically, writing
from twofold.models import feature_dimension, has_name
from twofold.models.adapter import AdaptedEncoder
from twofold.report import gallery
from twofold.report.card import last_part, name_of_data, render_card
from twofold.report.map_picture import draw_map
from twofold.runs.folder import RunFolder, adapter_file
from twofold.runs.run import is_encoder_folder, refuse_unusable_folder, write_encoder_folder
from twofold.runs.weights import encoder_file, load_encoder, share_adapter
from twofold.verbs.encoder_report import MAP_POINTS, record_encoder
from twofold.verbs.export_facts import how_to_adapt, largest_difference, write_facts
from twofold.verbs.export_formats import example_of, without_preprocessing
from twofold.verbs.load_lines import lines_of

CARD, MAP = "README.md", "map.png"
PHOTO = Path("photo.jpg")  # in the lines of the card


@dataclass(frozen=True)
class Records:
    """What is known about an encoder: the records of its run, or those of a measurement."""

    config: Mapping[str, Any] = field(default_factory=dict)
    results: Mapping[str, Any] = field(default_factory=dict)
    timing: Sequence[Mapping[str, Any]] = ()
    pictures: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: RunFolder) -> "Records":
        timing, pictures = folder.read("timing.jsonl"), gallery.read_pictures(folder)
        return cls(folder.config_record(), folder.results() or {}, timing, pictures)


def export_folder(
    what: What,
    out: str | Path | None,
    *,
    data: Any = None,
    module: str | nn.Module | None = None,
    image_size: int | None = None,
    adapter: bool = True,
    display: Display | None = None,
) -> Path:
    """Write the folder `out`, and return its path. The parameters are those of `export`."""
    display = display or Display(quiet=True)
    if out is None:
        raise TwofoldError("a folder to share needs a name: pass --out FOLDER")
    out = Path(out)
    refuse_unusable_folder(out)
    existed = out.exists()
    opened = open_any(what, data, display, module=module, image_size=image_size, adapter=adapter)
    with ExitStack() as stack:
        records = Records()
        if opened.run is not None and not is_encoder_folder(opened.run):
            records = Records.of(RunFolder.open(opened.run))
        elif data is not None:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            records = Records.of(record_encoder(place, what, data, display, module, image_size, MAP_POINTS))
    try:
        with writing(out):
            _write(out, what, opened, module, records)
    except BaseException:
        if not existed:
            shutil.rmtree(out, ignore_errors=True)
        raise
    return out


def _write(out: Path, what: What, opened: Opened, module: str | nn.Module | None, records: Records) -> None:
    network, plain = without_preprocessing(opened.encoder.network.cpu().eval())
    adapter = network if isinstance(network, AdaptedEncoder) else None
    values, config = records.config.get("values") or {}, opened.config
    description = describe_encoder(what, opened.encoder, module) | {
        "data": name_of_data(values.get("data") or config.data) or config.data,
        "data_dir": config.data_dir if opened.run is None else "data",
        "test_fraction": TEST_FRACTION if opened.run is None else config.test_fraction,
    }
    file = write_encoder_folder(out, plain, description)
    if adapter is not None:
        share_adapter(encoder_file(what), file, last_part)
    exported = example_of(plain, description)
    own = None if has_name(description["encoder"]) else copy.deepcopy(plain)
    loaded = load_encoder(out, encoder=own)
    difference = largest_difference(network, loaded, exported.example)
    is_of_run = opened.run is not None and not is_encoder_folder(opened.run)
    facts = write_facts(
        file,
        exported,
        "safetensors",
        adapter=None if adapter is None else how_to_adapt(adapter_file(file).name),
        difference=difference,
        trained=(config.method, config.epochs) if is_of_run else None,
    )
    if records.pictures.get("map"):
        write_atomically(out / MAP, draw_map(records.pictures))
    arguments = repr(out.name) + ("" if own is None else f", encoder={description['encoder']}()")
    is_file = description["channels"] in (1, 3)
    card = render_card(
        out.resolve().name,
        facts,
        lines=lines_of(arguments, PHOTO if is_file else None, description["channels"], description["image_size"]),
        features=feature_dimension(loaded, *exported.example.shape[1:3]),
        parameters=sum(weight.numel() for weight in plain.parameters()),
        source="" if opened.run is not None else opened.name,
        adapter=None if adapter is None else adapter.name,
        config=records.config,
        results=records.results,
        timing=records.timing,
        pictures=records.pictures,
    )
    write_atomically(out / CARD, card)
