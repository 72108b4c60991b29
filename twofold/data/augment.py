"""Random views of a batch, made on its device, with every parameter drawn for each sample and view.

The trainer makes an `Augmenter`, whose `eval_transform` prepares images for evaluation. To add an augmentation, write
one function at the end of this module, among the others in the order in which they are applied, decorate it with
`@operation`, and give `Augment` in config/sections.py a key of its name, the probability.

A draw is a hash of (seed, step, position, view, purpose), so a view does not depend on the rest of the batch. Nothing
here asks the host for a value or has a shape that depends on one, so a CUDA graph can capture it. What the
configuration turns off is left out when the Augmenter is made, and costs nothing.

Of images with more than three channels the first three are taken for red, green and blue: jitter, grayscale and
solarize change those alone. The channels after them share crop, flip, blur and noise with them, or are changed apart.

N images, V views of each, B = V·N (view by view), C channels, H×W the stored size, S the side of the views.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from twofold import counter
from twofold.config import Augment
from twofold.data import colour, resample
from twofold.keys import PerView

RGB = len(colour.LUMA)  # red, green and blue, which are the first channels where there are as many
Draws = dict[str, Tensor]  # purpose → [V, N], uniform in [0, 1); "noise" → keys [V, N, C·S·S]


@dataclass(frozen=True)
class EvalTransform:
    """Images as evaluation sees them: whole, `image_size` wide and high, normalised by `mean` and `std` `[C]`."""

    image_size: int
    mean: Tensor  # of pixels from 0 to 1
    std: Tensor

    def __call__(self, images: Tensor) -> Tensor:
        """uint8 `[N, C, H, W]` → float32 `[N, C, S, S]`."""
        return self.normalise(resample.resize(images, self.image_size) / 255)

    def normalise(self, pixels: Tensor) -> Tensor:
        """Pixels from 0 to 1, `[..., C, S, S]`."""
        return (pixels - self.mean.view(-1, 1, 1)) / self.std.view(-1, 1, 1)

    def to(self, device: torch.device | str) -> "EvalTransform":
        return EvalTransform(self.image_size, self.mean.to(device), self.std.to(device))


class Augmenter:
    """`augmenter(images, position, step)` makes the views that the network sees; `plain(images)` is for evaluation."""

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
    ) -> None:
        """`mean` and `std` `[C]` lie where the images will be (see `to`). `first_view` is the number of the first.

        `is_extra`: these are channels that come after the colours of images; they have draws of their own.
        """
        self.augment, self.image_size, self.seed = augment, image_size, seed
        self.first_view, self.is_extra = first_view, is_extra
        self.eval_transform = EvalTransform(image_size, mean.to(torch.float32), std.to(torch.float32))
        self.extra = self._of_extra_channels(views) if augment.extra_scale and len(mean) > RGB else None
        channels = len(mean) if self.extra is None else RGB
        self.has_colour = channels >= RGB and not is_extra
        self.colour_channels = RGB if self.has_colour else channels
        names = ("brightness", "contrast", "saturation", "hue") if self.has_colour else ("brightness", "contrast")
        self.jittered = tuple(name for name in names if getattr(augment, name) > 0)
        possible = [operation for operation in OPERATIONS if operation.is_possible(self)]
        # Mirroring is part of the crop, and costs nothing there.
        chances = {"flip": augment.flip} | {
            operation.name: getattr(augment, operation.name) for operation in possible if operation.has_chance
        }
        every = {name: per_view(value, first_view + views)[first_view:] for name, value in chances.items()}
        device = mean.device
        self.chance = {name: torch.tensor([p], device=device).float().T for name, p in every.items() if any(p)}
        # What is left out is not computed, and nothing is drawn for it.
        self.operations = tuple(
            operation for operation in possible if operation.name in self.chance or not operation.has_chance
        )
        self.drawn = self._purposes()
        prefix = "augment.extra" if is_extra else "augment"
        # Hashed here: a compiler cannot look into the hash of a text.
        hashes = [counter.purpose(f"{prefix}.{name}") for name in self.drawn]
        self.noise = counter.purpose(f"{prefix}.noise")
        self.purpose = torch.tensor(hashes, dtype=torch.int64, device=device).view(-1, 1, 1)
        self.view = torch.arange(first_view, first_view + views, device=device).view(-1, 1)
        # Kept, not made where it is used: a compiler would count it in 32 bits, and the hash needs 64.
        self.element = torch.arange(channels * image_size**2 if augment.noise > 0 else 0, device=device)

    def to(self, device: torch.device | str) -> "Augmenter":
        mean, std = self.eval_transform.mean.to(device), self.eval_transform.std.to(device)
        return Augmenter(
            self.augment,
            views=len(self.view),
            image_size=self.image_size,
            mean=mean,
            std=std,
            seed=self.seed,
            first_view=self.first_view,
            is_extra=self.is_extra,
        )

    def small_crops(self) -> "Augmenter | None":
        """An Augmenter for the small crops of multi-crop, numbered after these views; None where there are none."""
        if self.augment.local_views == 0:
            return None
        return Augmenter(
            replace(self.augment, crop_scale=self.augment.local_scale),
            views=self.augment.local_views,
            image_size=self.augment.local_size or max(self.image_size // 2, 1),
            mean=self.eval_transform.mean,
            std=self.eval_transform.std,
            seed=self.seed,
            first_view=len(self.view),
        )

    def __call__(self, images: Tensor, position: Tensor, step: Tensor) -> Tensor:
        """Normalised views, float32 `[V, N, C, S, S]`, of uint8 images `[N, C, H, W]`.

        `position` `[N]` is the place of each in the global batch, `step` `[]` the number of the training step.
        """
        return self.eval_transform.normalise(self.pixels(images, position, step))

    def pixels(self, images: Tensor, position: Tensor, step: Tensor) -> Tensor:
        """The same views before normalisation, from 0 to 1."""
        if self.extra is None:
            return self._pixels(images, position, step)
        first = self._pixels(images[:, :RGB], position, step)
        return torch.cat([first, self.extra.pixels(images[:, RGB:], position, step)], dim=2)

    def _pixels(self, images: Tensor, position: Tensor, step: Tensor) -> Tensor:
        draws = self._draw(position, step)
        x = self._cropped(images, draws) / 255
        for operation in self.operations:
            x = self._applied(operation, x, draws)
        return x.view(len(self.view), *images.shape[:2], self.image_size, self.image_size).clamp(0, 1)

    def _applied(self, operation: "Operation", x: Tensor, draws: Draws) -> Tensor:
        """To the channels that have colour alone where the operation is of colours; to all where none have."""
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
        """Which views the operation changes, bool `[V, N]`."""
        return draws[name] < self.chance[name]

    def _cropped(self, images: Tensor, draws: Draws) -> Tensor:
        """Crop, resize and mirror: `[B, C, S, S]`, still from 0 to 255."""
        if not self.augment.crops:
            x = resample.resize(images, self.image_size).repeat(len(self.view), 1, 1, 1)
            if "flip" in self.chance:
                x = torch.where(self.chosen("flip", draws).view(-1, 1, 1, 1), x.flip(-1), x)
            return x
        height, width = images.shape[2:]
        top, left, crop_height, crop_width = resample.crop_boxes(
            draws["crop.area"],
            draws["crop.ratio"],
            draws["crop.top"],
            draws["crop.left"],
            size=(height, width),
            scale=self.augment.crop_scale,
            ratios=self.augment.crop_ratio,
        )
        first, last = left, left + crop_width
        if "flip" in self.chance:
            flip = self.chosen("flip", draws)
            first, last = torch.where(flip, last, first), torch.where(flip, first, last)
        kernel = self.augment.interpolation
        rows = resample.axis_weights(top.T, (top + crop_height).T, height, self.image_size, kernel)
        columns = resample.axis_weights(first.T, last.T, width, self.image_size, kernel)
        x = resample.separable(images, rows, columns).flatten(0, 1)
        return x if kernel == "bilinear" else x.clamp(0, 255)  # a cubic overshoots at edges


def per_view(value: PerView, views: int) -> tuple[float, ...]:
    """One value for each view; a list shorter than the views starts again."""
    listed = value if isinstance(value, tuple) else (value,)
    return tuple(listed[view % len(listed)] for view in range(views))


def uniform_between(low: float, high: float, draw: Tensor) -> Tensor:
    """A uniform draw from [0, 1) brought to [low, high)."""
    return low + (high - low) * draw


@dataclass(frozen=True)
class Operation:
    """One augmentation of views that are cropped already."""

    name: str
    apply: Callable[[Augmenter, Tensor, Draws], Tensor]  # float32 [B, C, S, S] from 0 to 1 → the same, changed
    has_chance: bool  # the configuration has a probability under this name; `chosen` says whom it met
    of_colours: bool  # only of channels that have colour, where some have
    is_possible: Callable[[Augmenter], bool]
    draws: Callable[[Augmenter], Sequence[str]]  # purposes of further draws


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
    return colour.jitter(x, factors, {name: draws[f"jitter.order.{name}"].flatten() for name in views.jittered})


@operation("grayscale", of_colours=True, is_possible=lambda views: views.has_colour)
def _grayscale(views: Augmenter, x: Tensor, draws: Draws) -> Tensor:
    return colour.grayscale(x, views.chosen("grayscale", draws).flatten())


@operation("blur", draws=lambda _: ("blur.sigma",))
def _blur(views: Augmenter, x: Tensor, draws: Draws) -> Tensor:
    sigma = uniform_between(*views.augment.blur_sigma, draws["blur.sigma"]).flatten()
    blurred = resample.blur(x, sigma, views.augment.blur_sigma[1])
    return torch.where(views.chosen("blur", draws).view(-1, 1, 1, 1), blurred, x)


@operation("solarize", of_colours=True)
def _solarize(views: Augmenter, x: Tensor, draws: Draws) -> Tensor:
    return colour.solarize(x, views.chosen("solarize", draws).flatten())


@operation("noise", has_chance=False, is_possible=lambda views: views.augment.noise > 0)
def _noise(views: Augmenter, x: Tensor, draws: Draws) -> Tensor:
    # Its draws are keys, of which every pixel has one: `_draw` makes them.
    return x + views.augment.noise * counter.normal(draws["noise"]).view_as(x)
