"""Import torchvision with a build of PyTorch for which it was not made.

The torchvision of the package index is made for PyTorch with CUDA. With PyTorch for CPUs, its compiled operators (boxes
and regions of images) cannot be loaded, and its import fails. timm imports torchvision, but the networks that we test
use none of these operators. So we declare them, and save a download of several GB.
"""

import ctypes
import importlib.util
import re
from pathlib import Path

import torch

DECLARED = re.compile(r'register_meta\("(\w+)"\)|torchvision::(\w+)')
_library = torch.library.Library("torchvision", "FRAGMENT")


def declare_missing() -> None:
    """Declare the operators of torchvision if its compiled library cannot be loaded."""
    found = importlib.util.find_spec("torchvision")
    if found is None or not found.submodule_search_locations:
        return
    folder = Path(found.submodule_search_locations[0])
    try:
        for file in folder.glob("_C*.so"):
            ctypes.CDLL(str(file))
    except OSError:
        names = {name for pair in DECLARED.findall((folder / "_meta_registrations.py").read_text()) for name in pair}
        for name in names - {""}:
            _library.define(f"{name}(Tensor images) -> Tensor")
