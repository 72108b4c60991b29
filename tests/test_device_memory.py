"""Memory of freed tensors: kept during a training on a CPU, and returned to the system afterwards."""

import platform
import resource
import sys

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


@pytest.mark.skipif(not is_glibc, reason="only glibc returns memory so eagerly")
def test_memory_is_kept_inside_the_block_and_returned_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GLIBC_TUNABLES", "MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"):
        monkeypatch.delenv(name, raising=False)
    pages = 48 * MIB // resource.getpagesize()
    with kept_memory():
        page_faults(4)
        assert page_faults(8) < 3 * pages  # most use the memory of earlier ones
    assert page_faults(8) > 7 * pages


@pytest.mark.skipif(not is_glibc, reason="only glibc returns memory so eagerly")
def test_settings_of_the_user_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    with kept_memory():
        page_faults(1)
        assert page_faults(2) > 48 * MIB // resource.getpagesize()
