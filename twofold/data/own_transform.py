"""A transform of the user's own (`augment.transform`), and the random numbers that it draws.

`Augmenter` applies it to its views. `train/setup.py` finds the function and checks it before a run starts.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from twofold import counter
from twofold.config import Augment
from twofold.errors import TwofoldError

CHECKED = 8  # images of the check
CLOSE = 1e-4  # of pixels from 0 to 1: how much views may depend on the size of the batch, by rounding


@dataclass(frozen=True)
class Draw:
    """Random numbers for the views of a batch: hashes of the seed, the step, the image's position, the view and a name.

    The same name always gives the same numbers, so give each random decision its own name. The numbers do not depend on
    the number of processes or on resuming.

    Attributes
    ----------
    view : int
        The number of the view, from 0.
    step : Tensor
        The number of the training step, int64 `[]`, on the device.
    position : Tensor
        The position of each image in the batch of all processes, int64 `[N]`.

    Examples
    --------
    >>> def shade(views, draw):
    ...     strength = draw.uniform("shade", low=0.5, high=1.0)
    ...     return views * strength.view(-1, 1, 1, 1)
    """

    seed: int
    step: Tensor
    position: Tensor
    view: int

    def uniform(self, name: str, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Return numbers from low to below high, float32 `[N, *shape]`."""
        return counter.uniform(self._keys(name, shape), low, high)

    def normal(self, name: str, *shape: int) -> Tensor:
        """Return numbers of the standard normal distribution, float32 `[N, *shape]`."""
        return counter.normal(self._keys(name, shape))

    def integers(self, name: str, count: int, *shape: int) -> Tensor:
        """Return whole numbers from 0 to below count, int64 `[N, *shape]`."""
        return (self.uniform(name, *shape) * count).long().clamp(max=count - 1)

    def chance(self, name: str, probability: float, *shape: int) -> Tensor:
        """Return which decisions are true, bool `[N, *shape]`."""
        return self.uniform(name, *shape) < probability

    def _keys(self, name: str, shape: tuple[int, ...]) -> Tensor:
        keys = counter.key(self.seed, self.step, self.position, self.view, f"transform.{name}")
        if not shape:
            return keys
        count = int(np.prod(shape))
        element = torch.arange(count, device=keys.device)
        return counter.extend(keys[:, None], element).view(len(keys), *shape)


Transform = Callable[[Tensor, Draw], Tensor]


class OwnTransform:
    """Applies a function of the user's own to each view.

    Parameters
    ----------
    function
        Maps float32 `[N, C, S, S]` from 0 to 1 and a `Draw` to the same shape. Values outside 0 to 1 are clipped.
    name
        The value of the key, for messages.
    """

    def __init__(self, function: Transform, name: str):
        # torch.compile does not look into the function, which may contain anything. A CUDA graph still records it.
        self.function, self.name = torch.compiler.disable(function), name

    @torch.no_grad()
    def __call__(self, views: Tensor, seed: int, step: Tensor, position: Tensor, first_view: int = 0) -> Tensor:
        """Transform views `[V, N, C, S, S]`."""
        return self._changed(views, seed, step, position, first_view).clamp(0, 1)

    def _changed(self, views: Tensor, seed: int, step: Tensor, position: Tensor, first_view: int = 0) -> Tensor:
        changed = []
        for number, view in enumerate(views.unbind()):
            result = self.function(view, Draw(seed, step, position, first_view + number))
            self._refuse_other_kind(result, view)
            changed.append(result)
        return torch.stack(changed)

    def _refuse_other_kind(self, result: object, view: Tensor) -> None:
        if not isinstance(result, Tensor):
            raise self._error(f"returned a {type(result).__name__}", "return a tensor")
        for what in ("shape", "dtype", "device"):
            found, expected = getattr(result, what), getattr(view, what)
            if found != expected:
                words = tuple if what == "shape" else str
                raise self._error(
                    f"returned views of {what} {words(found)} instead of {words(expected)}", f"keep the {what}"
                )

    def check(self, views: Tensor, seed: int, position: Tensor) -> None:
        """Refuse a function that fails, or whose results do not follow from the views and the draws alone.

        `views` `[V, N, C, S, S]` are built-in views of some images.
        """
        step = torch.zeros((), dtype=torch.int64, device=views.device)
        try:
            with torch.random.fork_rng(), torch.no_grad():
                first, second = (self._changed(views.clone(), seed, step, position) for _ in range(2))
                half = len(position) // 2
                parts = [
                    self._changed(views[:, part].clone(), seed, step, position[part])
                    for part in (slice(half), slice(half, None))
                    if len(position[part])
                ]
        except TwofoldError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            raise self._error(f"failed on {len(position)} images ({reason})", "correct it") from error
        if not torch.isfinite(first).all():
            raise self._error("returned NaN or infinite pixels", "avoid divisions by zero")
        if not torch.equal(first, second):
            raise self._error(
                "returned other pixels for the same images and draws",
                "take all random numbers from its second argument",
            )
        if (first - torch.cat(parts, dim=1)).abs().max() > CLOSE:
            raise self._error(
                "returned other pixels for the same images in smaller batches, so that results would depend on the "
                "number of processes",
                "treat each image separately",
            )

    def _error(self, problem: str, remedy: str) -> TwofoldError:
        return TwofoldError(f"augment.transform={self.name} {problem}: {remedy}")


def without_operations(augment: Augment) -> Augment:
    """Return the augmentation that only resizes. Small crops keep their size."""
    return replace(
        Augment(crop_scale=(1, 1), crop_ratio=(1, 1), flip=0.0, jitter=0.0, grayscale=0.0),
        interpolation=augment.interpolation,
        local_views=augment.local_views,
        local_size=augment.local_size,
        local_scale=augment.local_scale,
    )
