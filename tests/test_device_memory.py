"""Memory of freed tensors: kept during a training on a CPU, and returned to the system afterwards."""

import os
import platform
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from twofold.device import kept_memory

MIB = 2**20
is_glibc = sys.platform == "linux" and platform.libc_ver()[0] == "glibc"


def page_faults(tensors: int) -> int:
    """The page faults of making and freeing tensors of 48 MiB, one after another."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(tensors):
        torch.empty(48 * MIB, dtype=torch.uint8).fill_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def measured_in_a_new_process() -> None:
    """Run in a process without freed memory of other tests."""
    pages = 48 * MIB // resource.getpagesize()
    assert page_faults(16) > 15 * pages  # glibc returns each tensor
    before = resident_bytes()
    with kept_memory():
        page_faults(4)
        assert page_faults(16) < 8 * pages  # most use the memory of earlier ones
    assert resident_bytes() < before + 24 * MIB  # and nothing is kept after the block


@pytest.mark.skipif(not is_glibc, reason="only glibc returns memory so eagerly")
def test_memory_is_kept_inside_the_block_and_returned_after_it() -> None:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    code = "import test_device_memory; test_device_memory.measured_in_a_new_process()"
    paths = os.pathsep.join(map(str, (Path(__file__).parent, Path(__file__).parents[1])))
    found = subprocess.run(
        [sys.executable, "-c", code], env=own | {"PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr


@pytest.mark.skipif(not is_glibc, reason="only glibc returns memory so eagerly")
def test_settings_of_the_user_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    with kept_memory():
        page_faults(1)
        assert page_faults(2) > 48 * MIB // resource.getpagesize()
