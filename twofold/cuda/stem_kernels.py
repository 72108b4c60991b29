"""A 3×3 convolution with few input channels as a matrix product. Libraries have no fast kernel for it. CUDA, Triton.

The neighbourhood of each pixel becomes a row of 32 numbers, of which 9C are used. The backward pass needs no kernel:
images need no gradient, and the gradient of the weights is a matrix product too.
"""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor, nn

WIDTH = 32  # numbers in a row of the matrix
ROWS = 128


@triton.jit
def _neighbourhoods(
    x, rows, stride_n, stride_c, stride_h, stride_w, H, W, C: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr
):  # fmt: skip
    """rows[(n, h, w), (dy, dx, c)] = x[n, c, h + dy − 1, w + dx − 1], 0 outside the image."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    n, h, w = row // (H * W), row // W % H, row % W
    k = tl.arange(0, WIDTH)
    c, y, z = k % C, h[:, None] + (k // C // 3)[None, :] - 1, w[:, None] + (k // C % 3)[None, :] - 1
    inside = (y >= 0) & (y < H) & (z >= 0) & (z < W) & (k < 9 * C)[None, :]
    at = n[:, None] * stride_n + c[None, :] * stride_c + y * stride_h + z * stride_w
    value = tl.load(x + at, inside, 0.0)
    tl.store(rows + row[:, None] * WIDTH + k[None, :], value.to(rows.dtype.element_ty))


def applies(conv: nn.Conv2d, x: Tensor) -> bool:
    """Whether `stem` supports this case: 3×3, stride and padding 1, at most 3 channels, bfloat16, no gradient for x."""
    return (
        conv.kernel_size == (3, 3)
        and conv.stride == conv.padding == (1, 1)
        and conv.in_channels <= 3
        and not x.requires_grad
        and torch.is_autocast_enabled("cuda")
        and x[:, 0].numel() % ROWS == 0
    )


def stem(conv: nn.Conv2d, x: Tensor) -> Tensor:
    """conv(x) in channels-last memory format."""
    N, C, H, W = x.shape
    rows = torch.empty(N * H * W, WIDTH, dtype=torch.bfloat16, device=x.device)
    _neighbourhoods[(len(rows) // ROWS,)](x, rows, *x.stride(), H, W, C, ROWS, WIDTH)
    weight = F.pad(conv.weight.permute(0, 2, 3, 1).flatten(1), (0, WIDTH - 9 * C))
    return (rows @ weight.T.to(rows.dtype)).view(N, H, W, -1).permute(0, 3, 1, 2)
