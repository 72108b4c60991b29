"""`export`: write the encoder for other programs, with a JSON file that states how to load it and prepare images."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from twofold.display import Display
from twofold.errors import TwofoldError, nearest
from twofold.evaluate.encoder import is_pretrained
from twofold.evaluate.opened import Opened, What, describe_encoder, open_any
from twofold.files import atomic, refuse_unwritable, writing
from twofold.models.onnx_encoder import OnnxEncoder
from twofold.runs.classifier_file import is_classifier
from twofold.runs.folder import adapter_file
from twofold.runs.run import is_encoder_folder
from twofold.runs.weights import copy_adapter, encoder_file
from twofold.verbs.export_classifier import export_classifier
from twofold.verbs.export_facts import how_to_adapt, largest_difference, preprocessing, write_facts
from twofold.verbs.export_folder import export_folder
from twofold.verbs.export_formats import FOLDER, FORMATS, example_of, without_preprocessing


def export(
    run: What,
    format: str,
    out: str | Path | None = None,
    *,
    data: Any = None,
    encoder: str | nn.Module | None = None,
    image_size: int | None = None,
    adapter: bool = True,
    display: Display | None = None,
) -> Path:
    """Export an encoder for use without Twofold, or as a folder to share.

    Twofold loads the file again and verifies that its features agree to 1e-4. It verifies ONNX files only if
    onnxruntime is installed. A folder holds weights, adapter, preprocessing, a model card (`README.md`) and the map of
    the features. `load_encoder`, `init` and all commands accept it.

    Parameters
    ----------
    run : str, Path, Run or nn.Module
        The encoder: a finished run, a folder that `adapt` wrote, a .safetensors or .onnx file, `efficientnet-lite0` or
        `timm:NAME` with pretrained weights, or a module.
        Or a file that `probe(run, classifier=FILE)` wrote: the exported file then computes features and the
        probabilities of the classes.
    format : {"safetensors", "torchscript", "onnx", "folder"}
        The file format, or `folder`.
    out : str or Path, optional
        The file to write, by default `encoder.safetensors`, `.pt` or `.onnx` in the run folder. A folder needs a name.
    data : optional
        Images, in any form that `pretrain` accepts, for an encoder that does not state its preprocessing. Their mean
        and standard deviation become part of it. With `folder`, an encoder without a run is also measured on these
        images, for the model card.
    encoder : str or nn.Module, optional
        For a .safetensors file that Twofold did not write: the name of its architecture. For a run that trained your
        own module: a module of the same class.
    image_size : int, optional
        The size of the images, for an encoder that does not state its own, and for `efficientnet-lite0` or `timm:NAME`.
    adapter : bool
        Include the adapter that `adapt` wrote, if there is one. A .safetensors file keeps the weights of the encoder
        alone; the adapter is written to a file next to it.
    display : Display, optional
        Where progress is printed. By default nothing is printed.

    Returns
    -------
    Path
        The file or folder. A second file, with `.json` added to the name, states how to load the encoder and how to
        prepare images.

    Examples
    --------
    >>> twofold.export("runs/frossl-photos-1", "onnx", "encoder.onnx")  # doctest: +SKIP
    >>> twofold.export("runs/frossl-photos-1", "folder", "photo-encoder")  # doctest: +SKIP
    """
    if format not in (*FORMATS, FOLDER):
        raise TwofoldError(f"unknown format '{format}'{nearest(format, [*FORMATS, FOLDER])}")
    if is_classifier(run):
        with quiet_torch():
            module = encoder if isinstance(encoder, nn.Module) else None
            return export_classifier(Path(str(run)), format, out, module, preprocessing)
    display = display or Display(quiet=True)
    if format == FOLDER:
        settings: dict[str, Any] = {"module": encoder, "image_size": image_size, "adapter": adapter}
        return export_folder(run, out, data=data, display=display, **settings)
    opened = open_any(run, data, Display(quiet=True), module=encoder, image_size=image_size, adapter=adapter)
    return _export_file(run, opened, format, out, encoder)


def _export_file(
    what: What, opened: Opened, format: str, out: str | Path | None, module: str | nn.Module | None
) -> Path:
    """Write an opened encoder to a file of this format, verify it, and describe it in a JSON file."""
    how, path = FORMATS[format], opened.run
    if path is None and out is None:
        raise TwofoldError(f"{opened.name} is not in a run folder: pass --out FILE, the file to write")
    network, plain = without_preprocessing(opened.encoder.network.cpu())
    is_adapted = network is not plain
    if isinstance(plain, OnnxEncoder) and format != "safetensors":
        raise TwofoldError(f"{opened.name} is an ONNX network and cannot be exported as {format}: use the .onnx file")
    is_apart = format == "safetensors"  # such a file holds the weights of the encoder alone
    exported = example_of(plain if is_apart else network, describe_encoder(what, opened.encoder, module))
    out = Path(out) if out is not None else (path or Path()) / f"encoder{how.ending}"
    if not out.resolve().parent.is_dir() or out.is_dir():
        raise TwofoldError(f"--out {out}: give the name of a file in a folder that exists")
    refuse_unwritable(out)
    with writing(out), atomic(out, durable=True) as aside, quiet_torch():
        how.write(exported, aside)
        difference = largest_difference(exported.encoder, how.read(exported, aside), exported.example)
        if is_apart:
            if isinstance(what, nn.Module) or is_pretrained(what):
                adapter_file(out).unlink(missing_ok=True)  # it may belong to other weights
            else:
                copy_adapter(encoder_file(what), out, wanted=is_adapted)
    is_of_run = path is not None and not is_encoder_folder(path)
    write_facts(
        out,
        exported,
        format,
        adapter=how_to_adapt(adapter_file(out).name if is_apart else None) if is_adapted else None,
        difference=difference,
        trained=(opened.config.method, opened.config.epochs) if is_of_run else None,
    )
    return out


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Silence torch's notices on deprecations and on libraries that the encoder does not use."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        logger.setLevel(level)
