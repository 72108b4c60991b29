"""Twofold: self-supervised learning of image representations.

Examples
--------
>>> import twofold
>>> run = twofold.pretrain("photos/", method="simclr", epochs=100)  # doctest: +SKIP
>>> twofold.probe(run)["rows"][0]["top1"]  # doctest: +SKIP
>>> encoder = twofold.load_encoder(run)  # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from twofold.version import __version__

__all__ = [
    "Config",
    "Run",
    "Twofold",
    "TwofoldError",
    "__version__",
    "adapt",
    "diagnose",
    "embed",
    "export",
    "knn",
    "load_encoder",
    "methods",
    "predict",
    "pretrain",
    "probe",
    "resume",
    "search",
]

if TYPE_CHECKING:
    from twofold.config import Config
    from twofold.errors import TwofoldError
    from twofold.runs.run import Run
    from twofold.runs.weights import load_encoder
    from twofold.verbs.adapt import adapt
    from twofold.verbs.diagnose import diagnose
    from twofold.verbs.embed import embed
    from twofold.verbs.estimator import Twofold
    from twofold.verbs.export import export
    from twofold.verbs.knn import knn
    from twofold.verbs.predict import predict
    from twofold.verbs.pretrain import pretrain
    from twofold.verbs.probe import probe
    from twofold.verbs.resume import resume
    from twofold.verbs.search import search

# The modules of the names that are not verbs. A verb is a function in the module of twofold.verbs with the same name.
_HOMES = {
    "Config": "config",
    "Run": "runs.run",
    "Twofold": "verbs.estimator",
    "TwofoldError": "errors",
    "load_encoder": "runs.weights",
}


def __getattr__(name: str) -> Any:
    # Imported on first use, so that `import twofold` and `twofold --help` do not wait for torch.
    if name == "methods":
        return import_module("twofold.methods")
    if name in __all__:
        return getattr(import_module(f"twofold.{_HOMES.get(name, f'verbs.{name}')}"), name)
    raise AttributeError(f"module 'twofold' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)  # not `Any` and other names that this module imports
