"""Twofold: self-supervised learning of image representations."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
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
    from twofold.api import Run, pretrain, resume
    from twofold.config import Config
    from twofold.diagnosis import diagnose
    from twofold.errors import TwofoldError
    from twofold.estimator import Twofold
    from twofold.inspection import knn, probe
    from twofold.train.weights import load_encoder
    from twofold.use.embedding import embed
    from twofold.use.export import export
    from twofold.use.search import search

_HOMES = {
    "Config": "config",
    "Run": "api",
    "Twofold": "estimator",
    "TwofoldError": "errors",
    "embed": "use.embedding",
    "export": "use.export",
    "diagnose": "diagnosis",
    "knn": "inspection",
    "load_encoder": "train.weights",
    "pretrain": "api",
    "probe": "inspection",
    "resume": "api",
    "search": "use.search",
}


def __getattr__(name: str) -> Any:
    # Late, so that `import twofold` and `twofold --help` do not wait for torch.
    if name == "methods":
        return import_module("twofold.methods")
    if name in _HOMES:
        return getattr(import_module(f"twofold.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'twofold' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
