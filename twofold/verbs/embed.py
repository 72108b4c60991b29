"""`embed`: write the features of images to a file."""

from pathlib import Path
from typing import Any

from torch import nn

from twofold.display import Display
from twofold.evaluate.opened import What, open_any
from twofold.files import atomic, writing
from twofold.verbs.all_images import AllImages, read_all_images
from twofold.verbs.feature_files import writer_for


def embed(
    run: What,
    data: Any,
    out: str | Path,
    *,
    encoder: str | nn.Module | None = None,
    image_size: int | None = None,
    adapter: bool = True,
    views: int = 1,
    quiet: bool = True,
    display: Display | None = None,
) -> Path:
    """Compute the features of images with any encoder and write them to a file.

    Parameters
    ----------
    run : str, Path, Run or nn.Module
        The encoder: a run, a folder that `adapt` wrote, a .safetensors or .onnx file, `efficientnet-lite0` or
        `timm:NAME` with pretrained weights, or a module.
    data
        The images, in any form that `pretrain` accepts.
    out : str or Path
        The .npz, .csv or .parquet file to write.
    encoder : str or nn.Module, optional
        For a .safetensors file that Twofold did not write: the name of its architecture. For a run that trained your
        own module: a module of the same class.
    image_size : int, optional
        The size of the images, for an encoder that does not state its own, and for `efficientnet-lite0` or `timm:NAME`.
    adapter : bool
        Apply the adapter that `adapt` wrote, if there is one.
    views : int
        1, or 5 to average the features of each image and of four crops of it. This takes five times as long.
    quiet : bool
        Print nothing.
    display : Display, optional
        Where progress is printed; the command line passes one.

    Returns
    -------
    Path
        The file. A .npz file contains the arrays `features` (float32 `[n, K]`), `index` and `split`, sorted by index.
        If the images have labels or file names, it also contains `labels`, `classes` and `files`; −1 stands for an
        unknown label and an empty text for an unknown file name. `split` is `train` or `test`. For the run's own
        images, `test` means that the run held the image out.

    Examples
    --------
    >>> path = twofold.embed("runs/frossl-photos-1", "photos/", "features.npz")  # doctest: +SKIP
    >>> features = np.load(path)["features"]  # doctest: +SKIP
    """
    out = Path(out)
    write = writer_for(out)
    display = display or Display(quiet=quiet)
    opened = open_any(run, data, display, module=encoder, image_size=image_size, adapter=adapter, views=views)
    images = AllImages(read_all_images(opened, data, display))
    with writing(out), atomic(out, durable=False) as aside, display.stage("embedding", len(images)) as stage:
        write(aside, images.catalogue, opened.encoder.blocks(images, stage))
    return out
