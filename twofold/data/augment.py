"""Make random views of a batch on its device. Each sample and view has random parameters of its own.

The trainer makes an `Augmenter`, whose `eval_transform` prepares images for evaluation. To add an augmentation, write a
function at the end of this module, decorate it with `@operation`, and add a key of its name to `Augment` in
config/sections.py: the probability. The operations are applied in the order in which they are defined.

A random draw is a hash of (seed, step, position, view, purpose), so a view does not depend on the rest of the batch. No
code here copies a value to the host or has a data-dependent shape, so a CUDA graph can capture it, except after
`for_cpu`. Operations that the configuration disables are removed when the Augmenter is made and cost nothing.

If images have more than three channels, the first three are treated as red, green and blue. Jitter, grayscale and
solarize change only those. The other channels share the other operations with them, or, with
`augment.extra_scale`, have random parameters of their own.

In shapes, N is the number of images, V the number of views of each, B = V·N (view by view), C the number of channels,
H×W the stored size, and S the side of the views.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from twofold import counter
from twofold.config import Augment
from twofold.data import colour, colour_cpu, resample, resample_cpu
from twofold.data.eval_transform import EvalTransform
from twofold.data.own_transform import OwnTransform
from twofold.keys import PerView

RGB = len(colour.LUMA)  # the number of colour channels
Draws = dict[str, Tensor]  # purpose → [V, N], uniform in [0, 1); "noise" → keys [V, N, C·S·S]


class Augmenter:
    """Makes the random views of training: `augmenter(images, position, step)`.

    Parameters
    ----------
    augment
        The configuration of the augmentation.
    views
        The number V of views.
    image_size
        The side S of the views.
    mean
        The mean of each channel `[C]`, for pixels from 0 to 1, on the device of the images.
    std
        The standard deviation of each channel `[C]`, in the same way.
    seed
        The seed of the random draws.
    first_view
        The number of the first view.
    is_extra
        Whether the images have only the channels after the colour channels. These channels have their own random
        draws.
    own
        A transform of the user's own, applied to the views.
    """

    def __init__(
        self,
        augment: Augment,
        *,
        views: int,
        image_size: int,
        mean: Tensor,
        std: Tensor,
        seed: int,
        first_view: int = 0,
        is_extra: bool = False,
        own: OwnTransform | None = None,
    ) -> None:
        self.own = own
        self.single: tuple[Augmenter, ...] = ()  # one for each view, if each view has an image of its own
        self.augment, self.image_size, self.seed = augment, image_size, seed
        self.first_view, self.is_extra = first_view, is_extra
        self.eval_transform = EvalTransform(image_size, mean.to(torch.float32), std.to(torch.float32))
        self.extra = self._of_extra_channels(views) if augment.extra_scale and len(mean) > RGB else None
        channels = len(mean) if self.extra is None else RGB
        self.has_colour = channels >= RGB and not is_extra
        self.change, self.jitter, self.blur = resample.change_all, colour.jitter, resample.blur
        self.colour_channels = RGB if self.has_colour else channels
        names = ("brightness", "contrast", "saturation", "hue") if self.has_colour else ("brightness", "contrast")
        self.jittered = tuple(name for name in names if getattr(augment, name) > 0)
        possible = [operation for operation in OPERATIONS if operation.is_possible(self)]
        # Flipping is part of the crop, where it costs nothing.
        chances = {"flip": augment.flip} | {
            operation.name: getattr(augment, operation.name) for operation in possible if operation.has_chance
        }
        every = {name: per_view(value, first_view + views)[first_view:] for name, value in chances.items()}
        device = mean.device
        self.chance = {name: torch.tensor([p], device=device).float().T for name, p in every.items() if any(p)}
        # Operations with probability 0 are not computed, and no random numbers are drawn for them.
        self.operations = tuple(
            operation for operation in possible if operation.name in self.chance or not operation.has_chance
        )
        self.drawn = self._purposes()
        prefix = "augment.extra" if is_extra else "augment"
        # The purposes are hashed here, because torch.compile cannot trace the hash of a string.
        hashes = [counter.purpose(f"{prefix}.{name}") for name in self.drawn]
        self.noise = counter.purpose(f"{prefix}.noise")
        self.purpose = torch.tensor(hashes, dtype=torch.int64, device=device).view(-1, 1, 1)
        self.view = torch.arange(first_view, first_view + views, device=device).view(-1, 1)
        # Stored as a tensor: torch.compile would compute a local range in 32 bits, and the hash needs 64.
        self.element = torch.arange(channels * image_size**2 if augment.noise > 0 else 0, device=device)

    def _with(self, **changes: Any) -> "Augmenter":
        """Return an Augmenter with other arguments."""
        same = {
            name: getattr(self, name) for name in ("augment", "image_size", "seed", "first_view", "is_extra", "own")
        }
        views, mean, std = len(self.view), self.eval_transform.mean, self.eval_transform.std
        return Augmenter(**{**same, "views": views, "mean": mean, "std": std, **changes})

    def to(self, device: torch.device | str) -> "Augmenter":
        return self._with(mean=self.eval_transform.mean.to(device), std=self.eval_transform.std.to(device))

    def for_cpu(self) -> "Augmenter":
        """Change only the views that draw an operation, which is faster on a CPU. Return this Augmenter."""
        self.change, self.jitter, self.blur = resample.change_some, colour_cpu.jitter, resample_cpu.blur
        if self.extra is not None:
            self.extra.for_cpu()
        return self

    def for_several_images(self) -> "Augmenter":
        """Make each view from an image of its own, `images[:, view]`, and return this Augmenter."""
        singles = [self._with(views=1, first_view=view, own=None) for view in self.view.flatten().tolist()]
        is_eager = self.change is resample.change_some
        self.single = tuple(one.for_cpu() if is_eager else one for one in singles)
        return self

    def small_crops(self) -> "Augmenter | None":
        """Return the Augmenter of the small crops of multi-crop, whose view numbers follow these, or None."""
        if self.augment.local_views == 0:
            return None
        return self._with(
            augment=replace(self.augment, crop_scale=self.augment.local_scale),
            views=self.augment.local_views,
            image_size=self.augment.local_size or max(self.image_size // 2, 1),
            first_view=len(self.view),
        )

    def __call__(self, images: Tensor, position: Tensor, step: Tensor, sizes: Tensor | None = None) -> Tensor:
        """Make normalised views, float32 `[V, N, C, S, S]`.

        Parameters
        ----------
        images
            uint8 `[N, C, H, W]`; with sizes, `[N, L, C, W]`. After `for_several_images`, `[N, F, ...]`: the image of
            each view.
        position
            The position of each image in the global batch, int64 `[N]`.
        step
            The number of the training step, int64 `[]`.
        sizes
            Height and width of each picture, int64 `[N, 2]`, if the images are pictures (see `data/pictures.py`).
        """
        return self.eval_transform.normalise(self.pixels(images, position, step, sizes))

    def pixels(self, images: Tensor, position: Tensor, step: Tensor, sizes: Tensor | None = None) -> Tensor:
        """Make the same views without normalisation: pixels from 0 to 1."""
        views = self.built_in(images, position, step, sizes)
        return views if self.own is None else self.own(views, self.seed, step, position, self.first_view)

    def built_in(self, images: Tensor, position: Tensor, step: Tensor, sizes: Tensor | None = None) -> Tensor:
        """Make the same views without the transform of the user's own."""
        if self.single:
            made = []
            for one in self.single:
                own_sizes = None if sizes is None else sizes[:, one.first_view]
                made.append(one.built_in(images[:, one.first_view], position, step, own_sizes))
            return torch.cat(made)
        if self.extra is None:
            return self._pixels(images, position, step, sizes)
        colours, others = images.tensor_split([RGB], dim=1 if sizes is None else 2)
        first = self._pixels(colours, position, step, sizes)
        return torch.cat([first, self.extra.pixels(others, position, step, sizes)], dim=2)

    def _pixels(self, images: Tensor, position: Tensor, step: Tensor, sizes: Tensor | None) -> Tensor:
        draws = self._draw(position, step)
        if sizes is None:
            x = self._cropped(images, draws)
        else:
            x = self._cropped_pictures(images, sizes.to(torch.float32), draws)
        x, channels = x / 255, x.shape[1]
        for operation in self.operations:
            x = self._applied(operation, x, draws)
        return x.view(len(self.view), len(images), channels, self.image_size, self.image_size).clamp(0, 1)

    def _applied(self, operation: "Operation", x: Tensor, draws: Draws) -> Tensor:
        """Apply an operation. A colour operation changes only the colour channels, if there are any."""
        if not operation.of_colours or x.shape[1] == self.colour_channels:
            return operation.apply(self, x, draws)
        changed = operation.apply(self, x[:, : self.colour_channels], draws)
        return torch.cat([changed, x[:, self.colour_channels :]], dim=1)

    def _of_extra_channels(self, views: int) -> "Augmenter":
        scale, blur = self.augment.extra_scale, self.augment.extra_blur
        assert scale is not None
        return Augmenter(
            replace(self.augment, crop_scale=scale, flip=0.0, blur=blur, solarize=0.0, extra_scale=None),
            views=views,
            image_size=self.image_size,
            mean=self.eval_transform.mean[RGB:],
            std=self.eval_transform.std[RGB:],
            seed=self.seed,
            first_view=self.first_view,
            is_extra=True,
        )

    def _purposes(self) -> list[str]:
        names = list(self.chance)
        if self.augment.crops:
            attempts = range(resample.CROP_ATTEMPTS)
            names += [f"crop.{what}.{attempt}" for what in ("area", "ratio") for attempt in attempts]
            names += ["crop.top", "crop.left"]
        for operation in self.operations:
            names += operation.draws(self)
        return names

    def _draw(self, position: Tensor, step: Tensor) -> Draws:
        noisy = self.augment.noise > 0
        if not self.drawn and not noisy:
            return {}
        places = counter.key(self.seed, step, position, self.view)
        values = counter.uniform(counter.extend(places, self.purpose))
        draws = dict(zip(self.drawn, values.unbind(), strict=True))
        for name in ("crop.area", "crop.ratio") if self.augment.crops else ():
            first = self.drawn.index(f"{name}.0")
            draws[name] = values[first : first + resample.CROP_ATTEMPTS]
        if noisy:
            draws["noise"] = counter.extend(places[..., None], self.noise, self.element)
        return draws

    def chosen(self, name: str, draws: Draws) -> Tensor:
        """Return which views the operation changes, bool `[V, N]`."""
        return draws[name] < self.chance[name]

    def _cropped(self, images: Tensor, draws: Draws) -> Tensor:
        """Crop, resize and flip: `[B, C, S, S]` with pixels from 0 to 255."""
        if not self.augment.crops:
            x = resample.resize(images, self.image_size).repeat(len(self.view), 1, 1, 1)
            if "flip" in self.chance:
                x = torch.where(self.chosen("flip", draws).view(-1, 1, 1, 1), x.flip(-1), x)
            return x
        height, width = images.shape[2:]
        top, bottom, first, last = self._box(draws, (height, width))
        kernel = self.augment.interpolation
        rows = resample.axis_weights(top.T, bottom.T, height, self.image_size, kernel)
        columns = resample.axis_weights(first.T, last.T, width, self.image_size, kernel)
        return self._in_range(resample.separable(images, rows, columns).flatten(0, 1))

    def _cropped_pictures(self, lines: Tensor, sizes: Tensor, draws: Draws) -> Tensor:
        """Like `_cropped`, from pictures `[N, L, C, W]` of these sizes. Without crops, their middle squares."""
        box = self._box(draws, (sizes[:, 0], sizes[:, 1]))
        return self._in_range(
            resample.crop_pictures(lines, sizes, box, self.image_size, self.augment.interpolation).flatten(0, 1)
        )

    def _box(self, draws: Draws, size: resample.Size) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return top, bottom, left and right of the crops, `[V, N]`; left and right are exchanged to flip."""
        if self.augment.crops:
            top, left, crop_height, crop_width = resample.crop_boxes(
                draws["crop.area"],
                draws["crop.ratio"],
                draws["crop.top"],
                draws["crop.left"],
                size=size,
                scale=self.augment.crop_scale,
                ratios=self.augment.crop_ratio,
            )
        else:
            views = self.view.new_zeros(len(self.view), 1)
            top, left, crop_height, crop_width = (views + edge for edge in resample.middle_crops(size, (1, 1)))
        first, last = left, left + crop_width
        if "flip" in self.chance:
            flip = self.chosen("flip", draws)
            first, last = torch.where(flip, last, first), torch.where(flip, first, last)
        return top, top + crop_height, first, last

    def _in_range(self, x: Tensor) -> Tensor:
        """Bicubic interpolation overshoots at edges."""
        return x if self.augment.interpolation == "bilinear" else x.clamp(0, 255)


def per_view(value: PerView, views: int) -> tuple[float, ...]:
    """Return one value for each view. A tuple that is shorter than the number of views is repeated."""
    listed = value if isinstance(value, tuple) else (value,)
    return tuple(listed[view % len(listed)] for view in range(views))


def uniform_between(low: float, high: float, draw: Tensor) -> Tensor:
    """Scale a uniform draw from [0, 1) to [low, high)."""
    return low + (high - low) * draw


@dataclass(frozen=True)
class Operation:
    """One augmentation of cropped views."""

    name: str
    apply: Callable[[Augmenter, Tensor, Draws], Tensor]  # maps float32 [B, C, S, S] from 0 to 1 to the same shape
    has_chance: bool  # whether the configuration has a probability of this name; `chosen` returns the drawn views
    of_colours: bool  # whether it changes only the colour channels, if there are any
    is_possible: Callable[[Augmenter], bool]
    draws: Callable[[Augmenter], Sequence[str]]  # the purposes of further random draws


OPERATIONS: list[Operation] = []  # in the order in which they are applied


def operation(
    name: str,
    *,
    has_chance: bool = True,
    of_colours: bool = False,
    is_possible: Callable[[Augmenter], bool] = lambda _: True,
    draws: Callable[[Augmenter], Sequence[str]] = lambda _: (),
) -> Callable[[Callable[[Augmenter, Tensor, Draws], Tensor]], Callable[[Augmenter, Tensor, Draws], Tensor]]:
    """Add the decorated function to OPERATIONS."""

    def add(apply: Callable[[Augmenter, Tensor, Draws], Tensor]) -> Callable[[Augmenter, Tensor, Draws], Tensor]:
        OPERATIONS.append(Operation(name, apply, has_chance, of_colours, is_possible, draws))
        return apply

    return add


def _affine_limits(augment: Augment) -> dict[str, tuple[float, float]]:
    return {
        "rotate": (-augment.rotate, augment.rotate),
        "shear": (-augment.shear, augment.shear),
        "scale": augment.scale,
        "shift.right": (-augment.shift, augment.shift),
        "shift.down": (-augment.shift, augment.shift),
    }


@operation(
    "affine",
    has_chance=False,
    is_possible=lambda views: (
        views.augment.scale != (1, 1) or any((views.augment.rotate, views.augment.shear, views.augment.shift))
    ),
    draws=lambda views: tuple(_affine_limits(views.augment)),
)
def _affine(views: Augmenter, x: Tensor, draws: Draws) -> Tensor:
    limits = _affine_limits(views.augment)
    return resample.affine(x, *(uniform_between(*limit, draws[name]).flatten() for name, limit in limits.items()))


@operation(
    "jitter",
    of_colours=True,
    is_possible=lambda views: bool(views.jittered),
    draws=lambda views: [f"jitter.{what}{name}" for what in ("", "order.") for name in views.jittered],
)
def _jitter(views: Augmenter, x: Tensor, draws: Draws) -> Tensor:
    chosen = views.chosen("jitter", draws)
    factors = {}
    for name in views.jittered:
        strength = getattr(views.augment, name)
        low, neutral, high = (-strength, 0.0, strength) if name == "hue" else (max(0, 1 - strength), 1.0, 1 + strength)
        factors[name] = torch.where(chosen, uniform_between(low, high, draws[f"jitter.{name}"]), neutral).flatten()
    return views.jitter(x, factors, {name: draws[f"jitter.order.{name}"].flatten() for name in views.jittered})


@operation("grayscale", of_colours=True, is_possible=lambda views: views.has_colour)
def _grayscale(views: Augmenter, x: Tensor, draws: Draws) -> Tensor:
    chosen = views.chosen("grayscale", draws).flatten()
    return views.change(lambda part, _: colour.grayscale(part), x, chosen, chosen)


@operation("blur", draws=lambda _: ("blur.sigma",))
def _blur(views: Augmenter, x: Tensor, draws: Draws) -> Tensor:
    sigma = uniform_between(*views.augment.blur_sigma, draws["blur.sigma"]).flatten()
    largest, chosen = views.augment.blur_sigma[1], views.chosen("blur", draws).flatten()
    return views.change(lambda part, sigmas: views.blur(part, sigmas, largest), x, sigma, chosen)


@operation("solarize", of_colours=True)
def _solarize(views: Augmenter, x: Tensor, draws: Draws) -> Tensor:
    return colour.solarize(x, views.chosen("solarize", draws).flatten())


@operation("noise", has_chance=False, is_possible=lambda views: views.augment.noise > 0)
def _noise(views: Augmenter, x: Tensor, draws: Draws) -> Tensor:
    # draws["noise"] contains one hash key for each pixel (see `_draw`).
    return x + views.augment.noise * counter.normal(draws["noise"]).view_as(x)
