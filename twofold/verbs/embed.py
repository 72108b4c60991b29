"""`embed`: the features of images under a run's encoder, as a file."""

from pathlib import Path
from typing import Any

from torch import nn

from twofold.display import Display
from twofold.evaluate.encoder import open_run_encoder
from twofold.files import atomic, writing
from twofold.runs.run import Run
from twofold.verbs.all_images import AllImages, read_all_images
from twofold.verbs.feature_files import writer_for


def embed(
    run: str | Path | Run,
    data: Any,
    out: str | Path,
    *,
    encoder: nn.Module | None = None,
    quiet: bool = True,
    display: Display | None = None,
) -> Path:
    """Features of every image of `data` under a run's encoder, in the order of their index, as .npz, .csv or .parquet.

    With them: index, split, and labels and file names where there are any. Labels are −1, and names empty, in a split
    that has none. `split` is the data's own; of the run's own data it says what the run held out.
    """
    out = Path(out)
    write = writer_for(out)
    display = display or Display(quiet=quiet)
    path, config = Path(run), Run(run).config
    opened = open_run_encoder(path, config, encoder)
    images = AllImages(read_all_images(path, config, data, display))
    with writing(out), atomic(out, durable=False) as aside, display.stage("embedding", len(images)) as stage:
        write(aside, images.catalogue, opened.blocks(images, stage))
    return out
