"""How a batch passes through the networks: at once, or in micro-batches if it needs too much memory.

Micro-batches give the exact gradient, at the price of a second forward pass. The first pass computes the embeddings of
the whole batch without a graph. The objective sees all of them, so it does not change, and its backward pass gives the
gradient of each embedding. The second pass takes these gradients through the networks, one micro-batch after another,
so that only the activations of one micro-batch are in memory. Layers that couple samples, such as BatchNorm, couple the
samples of a micro-batch only.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from twofold.cuda.streams import NoStreams, Streams
from twofold.errors import TwofoldError
from twofold.models.encoders import to_memory_format
from twofold.types import Batch, Embeddings

Forward = Callable[..., Embeddings]
OnEmbeddings = Callable[[Tensor], None]  # called with z


class WholeBatch:
    """Passes the whole batch through the networks at once: call `embed`, compute the loss, call `backward`."""

    def __init__(
        self,
        forward: Forward,
        on_embeddings: OnEmbeddings | None,
        streams: Streams | NoStreams,
        after_backward: Callable[[], None],
    ):
        """`on_embeddings` is called with z before the teacher's forward pass."""
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
    """Passes micro-batches through the networks twice: call `embed`, compute the loss, call `backward`."""

    def __init__(
        self,
        count: int,
        forward: Forward,
        networks: list[nn.Module],
        memory_format: torch.memory_format,
        on_embeddings: OnEmbeddings | None = None,
        after_backward: Callable[[], None] = lambda: None,
    ):
        """`networks` are run again in the second pass, on images in this `memory_format`.

        `after_backward` is called after each micro-batch.
        """
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
        """Compute the gradients of the embeddings, then take them through the networks."""
        loss.backward()
        sizes = [len(batch.index) for _, batch in self.parts]
        slopes = [[] if output.grad is None else output.grad.split(sizes, dim=1) for output in _outputs(self.whole)]
        for number in range(len(self.parts)):
            again = _outputs(self._embed_part(number, targets=False))
            # Features have no gradient while only the heads are trained.
            pairs = zip(again, slopes, strict=True)
            used = [(output, slope[number]) for output, slope in pairs if slope and output.requires_grad]
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
        """The embeddings of a micro-batch; random layers such as dropout draw the same in both passes."""
        views, batch = self.parts[number]
        device = views[0].device
        known = device.type == "cuda" and torch.cuda.is_current_stream_capturing()  # such networks draw nothing
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else [], enabled=not known):
            if not known:
                torch.manual_seed(torch.initial_seed() + number)
            return self.forward(views[0], batch, *views[1:], targets=targets)


def _outputs(embeddings: Embeddings) -> list[Tensor]:
    """The tensors that receive a gradient from the loss."""
    prediction = [] if embeddings.prediction is None else [embeddings.prediction]
    return [embeddings.features, embeddings.z, *prediction]


def _joined(parts: list[Tensor | None]) -> Tensor | None:
    tensors = [part for part in parts if part is not None]
    return torch.cat(tensors, dim=1) if tensors else None


@contextmanager
def unchanged(networks: list[nn.Module]) -> Iterator[None]:
    """Restore the networks' buffers afterwards, so that only one of the two passes updates running statistics."""
    buffers = [buffer for network in networks for buffer in network.buffers()]
    before = [buffer.clone() for buffer in buffers]
    yield
    for buffer, value in zip(buffers, before, strict=True):
        buffer.copy_(value)


def refuse_uneven(pieces: int, batch_size: int) -> None:
    """Raise an error if a batch cannot be split into equal micro-batches of two images or more."""
    if batch_size % pieces or batch_size // pieces < 2:
        raise TwofoldError(
            f"pieces={pieces} does not divide batch_size={batch_size} into equal micro-batches of two images or more: "
            "change one of them"
        )
