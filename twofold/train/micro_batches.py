"""How a batch passes through the networks: at once, or in micro-batches where it is too large for the device.

In micro-batches it is exact, at the price of a second forward pass. The objective sees the embeddings of the whole
batch, so nothing about it changes. They are first computed without a graph; the loss then gives the gradient of each
embedding; and a second pass, one micro-batch after another, takes those gradients through the networks. Only the
activations of one micro-batch are ever held. What couples samples inside a network, as BatchNorm does, couples those of
a micro-batch.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from twofold.cuda.streams import NoStreams, Streams
from twofold.errors import TwofoldError
from twofold.train.memory_format import to_memory_format
from twofold.types import Batch, Embeddings

Forward = Callable[..., Embeddings]
OnEmbeddings = Callable[[Tensor], None]  # is given z


class WholeBatch:
    """`embed`, then the loss, then `backward`: one pass through the networks."""

    def __init__(
        self,
        forward: Forward,
        on_embeddings: OnEmbeddings | None,
        streams: Streams | NoStreams,
        after_backward: Callable[[], None],
    ):
        """`on_embeddings` is called with z before the teacher's pass."""
        self.forward, self.on_embeddings, self.streams = forward, on_embeddings, streams
        self.after_backward = after_backward

    def embed(self, views: list[Tensor], batch: Batch) -> Embeddings:
        embeddings = self.forward(views[0], batch, *views[1:], on_embeddings=self.on_embeddings)
        self.streams.join()
        return embeddings

    def backward(self, loss: Tensor) -> None:
        loss.backward()
        self.after_backward()


class MicroBatches:
    """`embed`, then the loss, then `backward`: two passes, a part of the batch after the other."""

    def __init__(
        self,
        count: int,
        forward: Forward,
        networks: list[nn.Module],
        memory_format: torch.memory_format,
        on_embeddings: OnEmbeddings | None = None,
        after_backward: Callable[[], None] = lambda: None,
    ):
        """`networks` are those that the second pass runs again, `memory_format` is that of their images.
        `after_backward` is called for each part."""
        self.count, self.forward, self.networks, self.memory_format = count, forward, networks, memory_format
        self.on_embeddings, self.after_backward = on_embeddings, after_backward

    def embed(self, views: list[Tensor], batch: Batch) -> Embeddings:
        self.parts = list(self._split(views, batch))
        with torch.no_grad(), unchanged(self.networks):
            found = [self._embed_part(number, targets=True) for number in range(len(self.parts))]
        self.whole = Embeddings(
            features=torch.cat([e.features for e in found], dim=1),
            z=torch.cat([e.z for e in found], dim=1),
            index=batch.index,
            prediction=_joined([e.prediction for e in found]),
            target=_joined([e.target for e in found]),
        )
        for output in _outputs(self.whole):
            output.requires_grad_()
        if self.on_embeddings is not None:
            self.on_embeddings(self.whole.z)
        return self.whole

    def backward(self, loss: Tensor) -> None:
        """The gradients of the embeddings first, which then go through the networks."""
        loss.backward()
        sizes = [len(batch.index) for _, batch in self.parts]
        slopes = [[] if output.grad is None else output.grad.split(sizes, dim=1) for output in _outputs(self.whole)]
        for number in range(len(self.parts)):
            again = _outputs(self._embed_part(number, targets=False))
            used = [(output, slope[number]) for output, slope in zip(again, slopes, strict=True) if slope]
            torch.autograd.backward([output for output, _ in used], [slope for _, slope in used])
            self.after_backward()

    def _split(self, views: list[Tensor], batch: Batch) -> Iterator[tuple[list[Tensor], Batch]]:
        each = [view.tensor_split(self.count, dim=1) for view in views]
        fields = (batch.images, batch.index, batch.position, batch.labels)
        rows = [[None] * self.count if field is None else field.tensor_split(self.count) for field in fields]
        for number in range(self.count):
            part = Batch(*(field[number] for field in rows))  # type: ignore[arg-type]
            yield [to_memory_format(view[number], self.memory_format) for view in each], part

    def _embed_part(self, number: int, targets: bool) -> Embeddings:
        """The embeddings of a part; what its networks draw, such as dropout, is the same in both passes."""
        views, batch = self.parts[number]
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
