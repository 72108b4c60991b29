"""Twofold: self-supervised learning of image representations."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from twofold.version import __version__

__all__ = [
    "Config",
    "Run",
    "Twofold",
    "TwofoldError",
    "__version__",
    "diagnose",
    "embed",
    "export",
    "knn",
    "load_encoder",
    "methods",
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
    from twofold.verbs.diagnose import diagnose
    from twofold.verbs.embed import embed
    from twofold.verbs.estimator import Twofold
    from twofold.verbs.export import export
    from twofold.verbs.knn import knn
    from twofold.verbs.pretrain import pretrain
    from twofold.verbs.probe import probe
    from twofold.verbs.resume import resume
    from twofold.verbs.search import search

# Where the names are that are no verb; a verb is a module of twofold.verbs with a function of its own name.
_HOMES = {
    "Config": "config",
    "Run": "runs.run",
    "Twofold": "verbs.estimator",
    "TwofoldError": "errors",
    "load_encoder": "runs.weights",
}


def __getattr__(name: str) -> Any:
    # Late, so that `import twofold` and `twofold --help` do not wait for torch.
    if name == "methods":
        return import_module("twofold.methods")
    if name in __all__:
        return getattr(import_module(f"twofold.{_HOMES.get(name, f'verbs.{name}')}"), name)
    raise AttributeError(f"module 'twofold' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
