"""The adapter that a run fits at its end (key `adapter`): a linear map of the features of the encoder that it keeps."""

from torch import Tensor, nn

from twofold import dist
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.evaluate.adaptation import MOST_IMAGES, Adaptation, fit_adapter, mild_views
from twofold.models.adapter import Adapter
from twofold.runs.folder import RunFolder
from twofold.runs.weights import ENCODER_FILE, in_words
from twofold.train.trainer import Trainer

SHORT_IMAGES = 2_000  # of a short run; with more, the adapter would take as long as the training
WITH_ADAPTER = "with adapter"  # the name of its row in the table of accuracies


def fit_run_adapter(trainer: Trainer, network: nn.Module, folder: RunFolder, display: Display) -> Adaptation | None:
    """Fit an adapter to the training images and write it next to the encoder; None if the run is not to have one.

    `network` is the encoder that the run keeps. All processes fit the same map, and the first one writes it.
    """
    config = trainer.config
    if not config.adapter:
        return None
    flip = config.augment.flip
    flips = any(flip) if isinstance(flip, tuple) else flip > 0
    encoder = trainer.encoder(network)
    with display.stage("fitting an adapter", len(trainer.data.train)) as stage:
        try:
            augment = mild_views(encoder, flip=0.5 if flips else 0.0)
            most_images = SHORT_IMAGES if config.recipe == "short" else MOST_IMAGES
            found = fit_adapter(encoder, trainer.data.train, augment, most_images=most_images, progress=stage)
        except TwofoldError as error:  # such as features that are not finite; the run has its encoder all the same
            display.say(f"adapter  none: {error}")
            return None
    if dist.is_first():
        found.save(folder.path / ENCODER_FILE, network, data=config.data, graph="views")
    words = "none" if found.adapter is None else in_words(found.variant, found.settings)
    display.say(f"adapter  {words}: {found.reason}")
    return found


def applied(adapter: Adapter, pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the features of training and test images with the adapter applied."""
    train, test = (adapter.to(each.device)(each) for each in pair)
    return train, test
