"""Fitting and choosing an adapter: when it helps, when none is kept, and what it leaves unchanged."""

import copy
import json
import math

import pytest
import torch
from torch import Tensor, nn

from twofold.data.store import ImageStore
from twofold.errors import TwofoldError
from twofold.evaluate.adaptation import VARIANTS, _held_out, fit_adapter, group_retrieval, mild_views
from twofold.evaluate.encoder import Encoder
from twofold.evaluate.view_retrieval import view_retrieval
from twofold.models import patches
from twofold.models.encoders import PatchConv
from twofold.runs.preprocess import Preprocess

SIDE = 8


class Linear(nn.Module):
    """Features that mix the pixels; `glare` adds a dimension with much variance between the views of an image."""

    def __init__(self, glare: float) -> None:
        super().__init__()
        self.glare = glare
        self.norm = nn.BatchNorm2d(3)
        self.mix = nn.Parameter(torch.randn(3 * SIDE**2, 12, generator=torch.Generator().manual_seed(0)))

    def forward(self, images: Tensor) -> Tensor:
        coarse = nn.functional.adaptive_avg_pool2d(self.norm(images), 2)
        mixed = coarse.flatten(1) @ self.mix[:12]
        return torch.cat([mixed, self.glare * images.mean((1, 2, 3))[:, None]], 1)


def encoder(glare: float = 100.0, network: nn.Module | None = None) -> Encoder:
    preprocess = Preprocess(SIDE, 3, [0.5] * 3, [0.25] * 3)
    return Encoder.on_device(network or Linear(glare), preprocess, torch.device("cpu"))


def images(count: int, seed: int = 0) -> ImageStore:
    """Pictures of four random colours in the corners, which crops and flips mix up but seldom hide."""
    generator = torch.Generator().manual_seed(seed)
    colours = torch.randint(0, 256, (count, 3, 2, 2), dtype=torch.uint8, generator=generator)
    return ImageStore(colours.repeat_interleave(4, 2).repeat_interleave(4, 3), None, torch.arange(count))


def views_of(opened: Encoder, store: ImageStore) -> Tensor:
    return torch.cat([features for _, features in opened.view_blocks(store, mild_views(opened, seed=9))], 1)


def test_adapter_lets_views_of_new_images_find_each_other():
    opened = encoder()
    careful, found = fit_adapter(opened, images(300)), fit_adapter(opened, images(300), variant="within")
    assert careful.variant == found.variant == "within"
    assert careful.settings["shrinkage"] >= 0.9 > found.settings["shrinkage"]
    assert careful.after.mean > careful.before.mean
    assert found.adapter is not None
    assert found.after.mean > found.before.mean + 3 * found.before.standard_error
    fresh = views_of(opened, images(100, seed=1))
    assert view_retrieval(found.adapter(fresh)).mean() > view_retrieval(fresh).mean() + 0.1
    description = json.loads(json.dumps(found.description()))
    assert description["after"]["mean"] == found.after.mean
    assert description["images"] == 300
    assert description["held_out"] == 60


def test_adapter_is_the_same_every_time_and_leaves_the_network_as_it_was():
    opened = encoder()
    opened.network.train()
    before = copy.deepcopy(opened.network.state_dict())
    first, second = fit_adapter(opened, images(150)), fit_adapter(opened, images(150))
    assert torch.equal(first.adapter.matrix, second.adapter.matrix)
    assert torch.equal(first.adapter.mean, second.adapter.mean)
    assert opened.network.training
    for name, value in opened.network.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_adapted_features_do_not_depend_on_a_rotation_of_the_features():
    plain, turned = Linear(100.0), Linear(100.0)
    rotation = torch.linalg.qr(torch.randn(13, 13)).Q
    first = fit_adapter(encoder(network=plain), images(150))
    second = fit_adapter(encoder(network=nn.Sequential(turned, Turn(rotation))), images(150))
    assert first.settings == second.settings
    features = torch.randn(20, 13)
    products = [z @ z.T for z in (first.adapter(features), second.adapter(features @ rotation))]
    torch.testing.assert_close(products[0], products[1], rtol=1e-3, atol=1e-3 * products[0].abs().max().item())


class Turn(nn.Module):
    def __init__(self, rotation: Tensor) -> None:
        super().__init__()
        self.rotation = rotation

    def forward(self, features: Tensor) -> Tensor:
        return features @ self.rotation


class Constant(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.new_ones(len(images), 5)


class Broken(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.new_full((len(images), 5), math.nan)


class Wide(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.new_ones(len(images), 20_000)


class Average(nn.Module):
    """Views of an image differ as much as images: no map can help."""

    def forward(self, images: Tensor) -> Tensor:
        noise = images.flatten(1)[:, :12] * 1e4
        return torch.cat([noise.frac(), (7 * noise).frac()], 1)


@pytest.mark.parametrize("network", [Constant(), Average()])
def test_no_adapter_is_kept_if_none_helps(network: nn.Module):
    found = fit_adapter(encoder(network=network), images(200))
    assert found.adapter is None
    assert found.variant == "as it is"
    assert found.after == found.before
    assert "doubt" in found.reason


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_each_variant_can_be_asked_for(variant: str):
    found = fit_adapter(encoder(), images(120), variant=variant)
    assert found.variant == variant
    adapted = found.adapter(views_of(encoder(), images(30, seed=2)))
    assert torch.isfinite(adapted).all()
    assert found.settings in VARIANTS[variant].settings


def test_few_images_give_no_adapter_unless_a_variant_is_asked_for():
    found = fit_adapter(encoder(), images(39))
    assert (found.adapter, found.before, found.held_out) == (None, None, 0)
    assert "too few" in found.reason
    asked = fit_adapter(encoder(), images(5), variant="within")  # fewer images than features
    assert asked.settings == {"shrinkage": 0.9}
    assert torch.isfinite(asked.adapter.matrix).all()


def test_input_without_an_answer_is_refused():
    with pytest.raises(TwofoldError, match="at least two images, not 1"):
        fit_adapter(encoder(), images(1))
    with pytest.raises(TwofoldError, match=r"unknown variant 'witin'.*within"):
        fit_adapter(encoder(), images(50), variant="witin")
    with pytest.raises(TwofoldError, match="not finite"):
        fit_adapter(encoder(network=Broken()), images(50))
    with pytest.raises(TwofoldError, match=r"returns 20,000 features.*pool the last feature map"):
        fit_adapter(encoder(network=Wide()), images(50))


def test_many_images_are_thinned_out_evenly():
    found = fit_adapter(encoder(), images(300), most_images=100)
    assert found.images == 100
    assert found.held_out == 20


def test_labels_let_images_of_a_class_find_each_other():
    store = images(600)
    # Classes differ in blue, which has less variance than the other channels.
    labels = torch.arange(600) % 3
    pixels = store.images.clone()
    pixels[:, 2] = pixels[:, 2] // 4 + 60 * labels[:, None, None].to(torch.uint8)
    store = ImageStore(pixels, None, store.index)
    by_class = fit_adapter(encoder(), store, groups=labels)
    features = encoder().features(store)
    related = (labels[:, None] == labels) & ~torch.eye(600, dtype=torch.bool)
    adapted = group_retrieval(by_class.adapter(features), related).mean()
    assert adapted > group_retrieval(features, related).mean() + 0.03


def test_group_retrieval_is_the_rank_of_the_first_related_image():
    features = torch.randn(25, 4)
    numbers = torch.arange(25) % 6
    numbers[:3] = torch.tensor([7, 8, 9])  # alone in their groups
    related = (numbers[:, None] == numbers) & ~torch.eye(25, dtype=torch.bool)
    expected = []
    for image in range(3, 25):
        cosines = nn.functional.cosine_similarity(features[image], features, dim=1)
        others = sorted((other for other in range(25) if other != image), key=lambda other: -cosines[other])
        ranks = [rank for rank, other in enumerate(others, start=1) if numbers[other] == numbers[image]]
        expected.append(1 / ranks[0])
    torch.testing.assert_close(group_retrieval(features, related), torch.tensor(expected, dtype=torch.float64))


def test_whole_groups_are_held_out_together():
    numbers = torch.arange(400) // 8
    numbers[::10] = -1
    held_out = _held_out(numbers, whole_groups=True)
    assert 80 <= held_out.sum() <= 100
    for number in range(50):
        assert held_out[numbers == number].unique().numel() == 1
    assert 0 < held_out[numbers < 0].sum() < 40
    one_group = _held_out(torch.zeros(400, dtype=torch.int64), whole_groups=True)
    assert one_group.sum() == 80


def test_features_of_patches_get_a_bolder_map(monkeypatch):
    monkeypatch.setattr(patches.PatchFeatures, "WIDTH", 32)
    monkeypatch.setattr(patches, "SAMPLED", 500)
    store = images(150)
    network = PatchConv(3, SIDE).eval()
    opened = encoder(network=network)
    network.patches.fit(store.images, opened.preprocess)
    found = fit_adapter(opened, store)
    assert [each.settings["shrinkage"] for each in found.tried] == [0.9, 0.7, 0.5]
    assert found.adapter is not None
    assert found.settings["shrinkage"] < 0.9
