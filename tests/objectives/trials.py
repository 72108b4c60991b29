"""Degenerate embeddings and a check of CUDA graphs, for the tests of several objectives."""

from collections.abc import Callable

import torch
from torch import Tensor

DEGENERATE = ["nothing", "identical", "zero row", "all zero", "flat view"]


def degenerate(kind: str, z_VND: Tensor) -> Tensor:
    """Embeddings that may cause a division by zero."""
    z = z_VND.clone()
    if kind == "identical":
        z[:] = z[0, 0]
    elif kind == "zero row":
        z[0, 0] = 0
    elif kind == "all zero":
        z[:] = 0
    elif kind == "flat view":
        z[1] = z[1, 0]
    return z


def assert_same_in_a_cuda_graph(step: Callable[[], Tensor]) -> None:
    """Assert that a CUDA graph of the step gives the same result as the step."""
    side_stream = torch.cuda.Stream()
    with torch.cuda.stream(side_stream):  # libraries allocate on first use
        expected = [step() for _ in range(3)][-1]
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    graph.replay()
    torch.testing.assert_close(captured, expected, rtol=1e-4, atol=1e-5 * expected.abs().max().item())
