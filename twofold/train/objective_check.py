"""Runs a method's objective once, on made-up embeddings, before a run writes its first file.

`Trainer.__init__` calls it, so that errors of a method, and mistakes of its author, appear at once.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from twofold.config import Config
from twofold.errors import TwofoldError
from twofold.methods import Method
from twofold.randomness import seeded
from twofold.types import Embeddings, LossTerms


def embedding_width(name: str, method: Method, features: int, device: torch.device) -> int:
    """D, the width of the embeddings that the method's projector returns."""
    try:
        with torch.no_grad():
            z = method.eval().projector(torch.zeros(2, features, device=device))
    except RuntimeError as error:
        raise TwofoldError(f"{name}'s projector does not take {features} features of the encoder: {error}") from None
    if not isinstance(z, Tensor) or z.ndim != 2 or z.shape[0] != 2:
        shape = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
        raise TwofoldError(f"{name}'s projector must return embeddings [N, D]; it returned {shape} for N = 2")
    return z.shape[1]


def try_objective(config: Config, method: Method, index: Tensor, features: int, width: int) -> None:
    """Compute the loss of made-up embeddings for the images `index`, check it, and restore the method's buffers."""
    before = {name: buffer.clone() for name, buffer in method.named_buffers()}
    try:
        _try_objective(config, method, index, features, width)
    finally:
        with torch.no_grad():
            for name, buffer in method.named_buffers():
                if name in before and before[name].shape == buffer.shape:
                    buffer.copy_(before[name])


def _try_objective(config: Config, method: Method, index: Tensor, features: int, width: int) -> None:
    name, views = config.method, config.views
    shape = (views + config.augment.local_views, len(index))
    with torch.enable_grad(), seeded(config.seed):
        z = torch.linspace(-1, 1, shape[0] * shape[1] * width, device=index.device).view(*shape, width)
        z.requires_grad_()
        given = Embeddings(
            z.new_zeros(*shape, features, requires_grad=True),
            z,
            index,
            prediction=None if method.predictor is None else z.detach().clone().requires_grad_(),
            target=None if method.teacher is None else z[:views].detach(),
        )
        try:
            loss = method.objective(given)
        except TwofoldError as error:
            if views > 1:
                raise
            raise TwofoldError(f"{name} compares the views of an image: use views=2 or more ({error})") from None
        except Exception as error:
            if views > 1:
                raise
            reason = f"{type(error).__name__}: {error}"
            raise TwofoldError(f"{name}'s objective fails with views=1 ({reason}): use views=2 or more") from error
        check_loss(name, loss)
        if not loss.total.requires_grad:
            raise TwofoldError(f"{name}'s objective returns a loss without a gradient: it does not depend on e.z")
        refuse_strangers(name, method, given, loss.total)


def check_loss(name: str, loss: object) -> None:
    if not isinstance(loss, LossTerms):
        raise TwofoldError(f"{name}'s objective returns a {type(loss).__name__}: return LossTerms(total, terms)")
    if not isinstance(loss.terms, Mapping):
        kind = type(loss.terms).__name__
        raise TwofoldError(f"{name}'s objective returns a {kind} of terms: return a dict of names and values")
    for term, value in {"total": loss.total, **loss.terms}.items():
        if not isinstance(value, Tensor) or value.ndim or not value.is_floating_point():
            raise TwofoldError(f"{name}'s objective returns a '{term}' that is not a scalar tensor (shape [])")


def refuse_strangers(name: str, method: Method, given: Embeddings, total: Tensor) -> None:
    """Raise an error if the loss depends on a weight outside the method, which would not be trained or saved."""
    held = [*method.parameters(), *method.buffers()]
    held += [each for each in (given.z, given.features, given.prediction) if each is not None]
    known = {each.untyped_storage().data_ptr() for each in held}
    for leaf in leaves(total):
        if leaf.untyped_storage().data_ptr() not in known:
            raise TwofoldError(
                f"{name}'s objective uses a weight of shape {list(leaf.shape)} that is not part of the method, "
                "and so would not be trained: pass the module that has it to Method as head="
            )


def leaves(total: Tensor) -> Iterator[Tensor]:
    """The tensors at which the gradient of a loss ends."""
    waiting, seen = [total.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        waiting += [before for before, _ in node.next_functions]
