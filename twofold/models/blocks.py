"""The blocks of an encoder, in order from its input: freezing the first ones, and smaller learning rates for them.

A block is a layer or a group of layers without a list inside, such as a residual block. A norm belongs to the block
before it, and a loose parameter to the block after it. Any module has blocks: lists of layers (`nn.Sequential`,
`nn.ModuleList`) and modules around a single part are opened, other modules are not.
"""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from torch import nn

from twofold.errors import TwofoldError, nearest

Freeze = float | tuple[str, ...] | None  # the values of the key `freeze`


def blocks(encoder: nn.Module) -> list[list[str]]:
    """The names of the modules and parameters of each block, in the order in which the encoder defines them."""
    found: list[list[str]] = []
    loose: list[str] = []  # parameters outside modules, such as position embeddings: they belong to the next block
    for name, part in _parts(encoder, ""):
        if isinstance(part, nn.Parameter):
            loose.append(name)
        elif found and all(weight.ndim < 2 for weight in part.parameters()):
            found[-1] += [*loose, name]
            loose = []
        else:
            found.append([*loose, name])
            loose = []
    return [*found, loose] if loose else found


def _parts(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module | nn.Parameter]]:
    """The parts of an opened module that have weights."""
    for name, weight in module.named_parameters(recurse=False):
        yield prefix + name, weight
    children = [(name, child) for name, child in module.named_children() if any(True for _ in child.parameters())]
    for name, child in children:
        is_list = isinstance(child, nn.Sequential | nn.ModuleList)
        is_around_one = len(children) == 1 and not isinstance(module, nn.Sequential | nn.ModuleList)
        if is_list or (is_around_one and any(True for _ in child.children())):
            yield from _parts(child, f"{prefix}{name}.")
        else:
            yield prefix + name, child


def is_within(name: str, parts: Sequence[str]) -> bool:
    """Whether a module or parameter is one of these parts, or lies in one. A part may have wildcards (`layer*`)."""
    ancestors = [name[:end] for end in (*(at for at, sign in enumerate(name) if sign == "."), len(name))]
    return any(fnmatchcase(ancestor, part) for part in parts for ancestor in ancestors)


def frozen_parts(encoder: nn.Module, freeze: Freeze) -> list[str]:
    """The names of the parts that `freeze` names; raise an error if there are no such parts."""
    if freeze is None or freeze == 0:
        return []
    if isinstance(freeze, tuple):
        names = [name for name, _ in (*encoder.named_modules(), *encoder.named_parameters()) if name]
        for part in freeze:
            if not any(fnmatchcase(name, part) for name in names):
                first = [block[0] for block in blocks(encoder)]
                raise TwofoldError(
                    f"freeze: the encoder has no part '{part}'{nearest(part, names)}; its blocks are {', '.join(first)}"
                )
        parts = list(freeze)
    else:
        every = blocks(encoder)
        count = min(round(freeze * len(every)), len(every) - 1) if 0 < freeze < 1 else int(freeze)
        if count != freeze and not 0 < freeze < 1:
            raise TwofoldError(f"freeze={freeze:g}: give a fraction below 1 or a whole number of blocks")
        if not -len(every) < count < len(every):
            raise TwofoldError(
                f"freeze={freeze:g}: the encoder has {len(every)} blocks, and one or more must be trained"
            )
        parts = [name for block in every[:count] for name in block]
    return parts


def batchnorms(encoder: nn.Module) -> dict[str, nn.modules.batchnorm._BatchNorm]:
    """The BatchNorm layers that keep running statistics, by name."""
    return {
        name: part
        for name, part in encoder.named_modules()
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.running_mean is not None
    }


def has_new_batchnorm(encoder: nn.Module) -> bool:
    """Whether the encoder has BatchNorm layers whose running statistics are all as new, so it was never trained."""
    layers = batchnorms(encoder).values()
    return bool(layers) and all(
        not layer.running_mean.any() and bool((layer.running_var == 1).all())  # type: ignore[union-attr]
        for layer in layers
    )


def freeze_parameters(encoder: nn.Module, freeze: Freeze, freeze_batchnorm: str) -> None:
    """Switch off the gradients of the frozen parts. Optimizers then keep no state for them."""
    parts = frozen_parts(encoder, freeze)
    if freeze_batchnorm == "all":
        parts += list(batchnorms(encoder))
    for name, weight in encoder.named_parameters():
        if is_within(name, parts):
            weight.requires_grad_(False)
    if not any(weight.requires_grad for weight in encoder.parameters()):
        raise TwofoldError(f"freeze={','.join(parts)} leaves nothing of the encoder to train: freeze fewer parts")


def constant_modules(encoder: nn.Module, freeze: Freeze, freeze_batchnorm: str) -> list[nn.Module]:
    """The modules that stay in evaluation mode while the encoder is trained.

    These are the frozen parts, whose BatchNorm and dropout must not change either, and BatchNorm layers with frozen
    statistics.
    """
    parts = frozen_parts(encoder, freeze)
    layers = batchnorms(encoder) if freeze_batchnorm != "none" else {}
    return [part for name, part in encoder.named_modules() if name in layers or (name and is_within(name, parts))]


def block_numbers(encoder: nn.Module) -> dict[str, int]:
    """The number of the block of each parameter, counted from the output: the last block has 0."""
    every = blocks(encoder)
    return {
        name: len(every) - 1 - number
        for number, block in enumerate(every)
        for name, _ in encoder.named_parameters()
        if is_within(name, block)
    }
