"""What more than one file of tests puts objectives through."""

from collections.abc import Callable

import torch
from torch import Tensor

SPOILS = ["nothing", "identical", "zero row", "all zero", "flat view"]


def spoiled(how: str, z_VND: Tensor) -> Tensor:
    """Embeddings that divide by zero where nobody looked."""
    z = z_VND.clone()
    if how == "identical":
        z[:] = z[0, 0]
    elif how == "zero row":
        z[0, 0] = 0
    elif how == "all zero":
        z[:] = 0
    elif how == "flat view":
        z[1] = z[1, 0]
    return z


def assert_a_cuda_graph_gives(step: Callable[[], Tensor]) -> None:
    """What the step gives without one."""
    aside = torch.cuda.Stream()
    with torch.cuda.stream(aside):  # libraries allocate on first use
        expected = [step() for _ in range(3)][-1]
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    graph.replay()
    torch.testing.assert_close(captured, expected, rtol=1e-4, atol=1e-5 * expected.abs().max().item())
