"""The score of views against a plain loop, its limits, and the views that it uses."""

import math

import torch

from twofold.config import Augment
from twofold.data.augment import Augmenter
from twofold.data.store import ImageStore
from twofold.evaluate.view_retrieval import Estimate, features_of_views, mild, score_views, view_retrieval


def plain(features: torch.Tensor) -> list[float]:
    """The definition, one query at a time, with Python's sort."""
    views, images, _ = features.shape
    scores = [0.0] * images
    for asking in range(views):
        for answering in range(views):
            for image in range(images) if asking != answering else ():
                query = features[asking, image].double()
                cosines = [
                    float(query @ other / (query.norm() * other.norm())) for other in features[answering].double()
                ]
                rank = sorted(cosines, reverse=True).index(cosines[image]) + 1
                scores[image] += 1 / rank / (views * (views - 1))
    return scores


def test_score_is_the_definition():
    torch.manual_seed(0)
    features = torch.randn(1, 40, 6) + torch.randn(3, 40, 6)
    torch.testing.assert_close(view_retrieval(features), torch.tensor(plain(features), dtype=torch.float64))


def test_score_does_not_change_with_lengths_rotations_or_the_order_of_images():
    torch.manual_seed(1)
    features = torch.randn(1, 50, 8) + 0.5 * torch.randn(2, 50, 8)
    rotation = torch.linalg.qr(torch.randn(8, 8))[0]
    order = torch.randperm(50)
    changed = (3 * features @ rotation)[:, order]
    torch.testing.assert_close(view_retrieval(changed), view_retrieval(features)[order])
    torch.testing.assert_close(view_retrieval(features.flip(0)), view_retrieval(features))


def test_score_of_equal_features_and_of_features_that_are_not_numbers_is_lowest():
    equal = view_retrieval(torch.ones(2, 9, 4))
    torch.testing.assert_close(equal, torch.full((9,), 2 / 10, dtype=torch.float64))
    broken = view_retrieval(torch.full((2, 9, 4), math.nan))
    torch.testing.assert_close(broken, torch.full((9,), 1 / 9, dtype=torch.float64))


def test_more_noise_between_views_lowers_the_score():
    torch.manual_seed(2)
    image, noise = torch.randn(1, 200, 16), torch.randn(2, 200, 16)
    scores = [view_retrieval(image + level * noise).mean() for level in (0.0, 0.5, 1.0, 3.0)]
    assert scores[0] == 1
    assert scores == sorted(scores, reverse=True)


def test_standard_error_is_the_spread_of_the_mean_over_samples():
    torch.manual_seed(3)
    means = torch.rand(2000, 100, dtype=torch.float64)
    claimed = Estimate.of(means[0]).standard_error
    assert abs(claimed / means.mean(1).std().item() - 1) < 0.1
    assert Estimate.of(means[0, :1]).standard_error == math.inf


def test_views_depend_on_the_seed_and_the_number_of_the_image_alone():
    torch.manual_seed(4)
    images = torch.randint(0, 256, (300, 3, 8, 8), dtype=torch.uint8)
    store = ImageStore(images, None, torch.arange(300))
    settings = {"views": 2, "image_size": 8, "mean": torch.zeros(3), "std": torch.ones(3)}

    def views(count: int, seed: int = 0, rounds: int = 1) -> torch.Tensor:
        few = ImageStore(images[:count], None, torch.arange(count))
        augment = Augmenter(Augment(), seed=seed, **settings)
        return features_of_views(augment, few, lambda pixels: pixels.flatten(1), rounds=rounds)

    whole = views(len(store), rounds=2)
    assert whole.shape == (4, 300, 3 * 64)
    assert torch.equal(views(10), whole[:2, :10])
    assert not torch.equal(whole[0], whole[2])
    assert not torch.equal(views(10, seed=1), whole[:2, :10])
    assert whole.min() >= 0
    assert whole.max() <= 1


def test_encoders_are_scored_by_views_that_do_not_depend_on_the_augmentation_of_the_run():
    harsh = Augment(crop_scale=(0.02, 0.1), grayscale=1.0, rotate=180.0, noise=0.5, local_views=2, flip=0.0)
    assert mild(harsh) == mild(Augment(flip=0.0))
    assert mild(Augment(flip=0.5)) != mild(harsh)  # digits are not flipped, and photographs are


def test_a_score_counts_the_dimensions_of_the_features():
    torch.manual_seed(5)
    images = torch.randint(0, 256, (60, 3, 8, 8), dtype=torch.uint8)
    store = ImageStore(images, None, torch.arange(60))
    augment = Augmenter(mild(Augment()), views=2, image_size=8, mean=torch.zeros(3), std=torch.ones(3), seed=0)
    line = score_views(augment, store, lambda pixels: pixels.mean((1, 2, 3)).view(-1, 1) * torch.ones(5))
    assert abs(line.rank - 1) < 1e-3
    rich = score_views(augment, store, lambda pixels: pixels.flatten(1))
    assert rich.rank > 10
    broken = score_views(augment, store, lambda pixels: torch.full((len(pixels), 5), math.nan))
    assert (broken.rank, broken.mean) == (0.0, 1 / 60)
