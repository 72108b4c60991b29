"""A batch that is too large for the device, in pieces: exact, at the price of a second forward pass.

The objective sees the embeddings of the whole batch, so nothing about it changes. They are first computed without a
graph; the loss then gives the gradient of each embedding; and a second pass, piece by piece, takes those gradients
through the networks. Only one piece's activations are ever held. What couples samples inside a network, as BatchNorm
does, couples those of a piece.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from twofold.errors import TwofoldError
from twofold.train.memory_format import to_memory_format
from twofold.types import Batch, Embeddings

Forward = Callable[..., Embeddings]


class Pieces:
    """`embed`, then the loss's backward pass, then `backward`."""

    def __init__(self, count: int, forward: Forward, networks: list[nn.Module], memory_format: torch.memory_format):
        """`networks` are those that the second pass runs again, `memory_format` is that of their images."""
        self.count, self.forward, self.networks, self.memory_format = count, forward, networks, memory_format
        self.collect: Callable[[], None] = lambda: None  # what is to be done after each piece's backward pass

    def embed(self, views: list[Tensor], batch: Batch) -> Embeddings:
        self.pieces = list(self._split(views, batch))
        with torch.no_grad(), unchanged(self.networks):
            found = [self._drawing(number, targets=True) for number in range(len(self.pieces))]
        self.whole = Embeddings(
            features=torch.cat([e.features for e in found], dim=1),
            z=torch.cat([e.z for e in found], dim=1),
            index=batch.index,
            prediction=_joined([e.prediction for e in found]),
            target=_joined([e.target for e in found]),
        )
        for output in _outputs(self.whole):
            output.requires_grad_()
        return self.whole

    def backward(self) -> None:
        """Send what the loss's backward pass left at the embeddings through the networks."""
        sizes = [len(batch.index) for _, batch in self.pieces]
        slopes = [[] if output.grad is None else output.grad.split(sizes, dim=1) for output in _outputs(self.whole)]
        for number in range(len(self.pieces)):
            again = _outputs(self._drawing(number, targets=False))
            used = [(output, slope[number]) for output, slope in zip(again, slopes, strict=True) if slope]
            torch.autograd.backward([output for output, _ in used], [slope for _, slope in used])
            self.collect()

    def _split(self, views: list[Tensor], batch: Batch) -> Iterator[tuple[list[Tensor], Batch]]:
        each = [view.tensor_split(self.count, dim=1) for view in views]
        fields = (batch.images, batch.index, batch.position, batch.labels)
        rows = [[None] * self.count if field is None else field.tensor_split(self.count) for field in fields]
        for number in range(self.count):
            part = Batch(*(field[number] for field in rows))  # type: ignore[arg-type]
            yield [to_memory_format(view[number], self.memory_format) for view in each], part

    def _drawing(self, number: int, targets: bool) -> Embeddings:
        """A piece's embeddings; what its networks draw, such as dropout, is the same in both passes."""
        views, batch = self.pieces[number]
        device = views[0].device
        known = device.type == "cuda" and torch.cuda.is_current_stream_capturing()  # then nothing in them draws
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else [], enabled=not known):
            if not known:
                torch.manual_seed(torch.initial_seed() + number)
            return self.forward(views[0], batch, *views[1:], targets=targets)


def _outputs(embeddings: Embeddings) -> list[Tensor]:
    """What a gradient can come back to."""
    prediction = [] if embeddings.prediction is None else [embeddings.prediction]
    return [embeddings.features, embeddings.z, *prediction]


def _joined(parts: list[Tensor | None]) -> Tensor | None:
    tensors = [part for part in parts if part is not None]
    return torch.cat(tensors, dim=1) if tensors else None


@contextmanager
def unchanged(networks: list[nn.Module]) -> Iterator[None]:
    """Put the networks' buffers back: running statistics move in one of two passes only."""
    buffers = [buffer for network in networks for buffer in network.buffers()]
    before = [buffer.clone() for buffer in buffers]
    yield
    for buffer, value in zip(buffers, before, strict=True):
        buffer.copy_(value)


def refuse_uneven(pieces: int, batch_size: int) -> None:
    if batch_size % pieces or batch_size // pieces < 2:
        raise TwofoldError(
            f"pieces={pieces} does not divide batch_size={batch_size} into equal parts of two images or more"
        )
