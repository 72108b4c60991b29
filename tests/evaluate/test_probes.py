"""Linear probes and kNN, compared with scikit-learn and PyTorch."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix, recall_score, top_k_accuracy_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler, normalize
from torch import Tensor

from twofold.counter import key, permutation
from twofold.errors import TwofoldError
from twofold.evaluate import linear, probes
from twofold.evaluate.linear import PENALTIES, fit_linear, stratified_folds
from twofold.evaluate.probes import (
    few_label_accuracy,
    knn_accuracy,
    knn_predict,
    knn_ranked,
    labelled_subset,
    linear_accuracy,
    linear_scores,
    measure_accuracies,
    scores,
)
from twofold.evaluate.protocols import SOLVERS, fit_adam, fit_sgd


def blobs(count: int, features: int, classes: int, *, spread: float = 2.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return overlapping Gaussian classes whose features are correlated and differ much in scale."""
    generator = np.random.default_rng(seed)
    shape = np.random.default_rng(99)
    centres = shape.normal(size=(classes, features))
    mixing = np.eye(features) + 0.3 * shape.normal(size=(features, features))
    labels = np.concatenate([np.arange(classes), generator.integers(0, classes, count - classes)])
    values = (centres[labels] + spread * generator.normal(size=(count, features))) @ mixing
    return torch.from_numpy(values * np.geomspace(0.01, 100, features) + 3.0), torch.from_numpy(labels)


def scikit_fit(x: np.ndarray, labels: np.ndarray, penalty: float) -> LogisticRegression:
    return LogisticRegression(C=1 / (penalty * len(x)), tol=1e-10, max_iter=10_000, solver="newton-cg").fit(x, labels)


def objective(x: np.ndarray, labels: np.ndarray, weight: np.ndarray, bias: np.ndarray, penalty: float) -> float:
    logits = x @ weight + bias
    log_p = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    return -log_p[np.arange(len(x)), labels].mean() + penalty / 2 * (weight**2).sum()


@pytest.mark.parametrize("penalty", [1.0, 1e-2, 1e-4])
@pytest.mark.parametrize("count, features", [(300, 12), (60, 100)])
def test_linear_probe_equals_logistic_regression_of_scikit_learn(count, features, penalty):
    values, labels = blobs(count, features, 4)
    fresh, _ = blobs(500, features, 4, seed=1)
    scaler = StandardScaler().fit(values)
    expected = scikit_fit(scaler.transform(values), labels.numpy(), penalty)
    probe = fit_linear(values, labels, classes=4, penalties=[penalty], tolerance=1e-9)
    # A line search compares losses, so the position of the minimum has an error of √eps of float64 over the curvature.
    close = 1e-5 * np.abs(expected.coef_).max()
    np.testing.assert_allclose(probe.weight.T, expected.coef_, rtol=0, atol=close)
    np.testing.assert_allclose(probe.bias, expected.intercept_, rtol=0, atol=close)
    assert (probe.predict(fresh).numpy() == expected.predict(scaler.transform(fresh))).all()
    assert probe.penalty == penalty
    assert probe.held_out_accuracy is None


@pytest.mark.parametrize("penalty", [1e-1, 1e-3, 1e-5])
def test_default_tolerance_reaches_the_minimum_of_ill_conditioned_features(penalty):
    generator = np.random.default_rng(0)
    rotation = np.linalg.qr(generator.normal(size=(30, 30)))[0]
    _, labels = blobs(400, 30, 5)
    values = generator.normal(size=(400, 30)) + 0.7 * np.random.default_rng(1).normal(size=(5, 30))[labels]
    values = values * np.geomspace(1, 1e-4, 30) @ rotation  # eigenvalues over eight decades
    x = StandardScaler().fit_transform(values)
    best = scikit_fit(x, labels.numpy(), penalty)
    probe = fit_linear(torch.from_numpy(values), labels, classes=5, penalties=[penalty])
    minimum = objective(x, labels, best.coef_.T, best.intercept_, penalty)
    reached = objective(x, labels, probe.weight.numpy(), probe.bias.numpy(), penalty)
    assert reached == pytest.approx(minimum, abs=1e-6)


def test_large_problems_are_solved_in_float32_as_well(monkeypatch):
    values, labels = blobs(600, 20, 4)
    exact = fit_linear(values, labels, classes=4, penalties=[1e-3])
    monkeypatch.setattr(linear, "DOUBLE", 600 * 20 - 1)
    rounded = fit_linear(values.float(), labels, classes=4, penalties=[1e-3])
    assert exact.weight.dtype == torch.float64
    assert rounded.weight.dtype == torch.float32
    torch.testing.assert_close(rounded.weight.double(), exact.weight, atol=1e-3, rtol=0)


@pytest.mark.parametrize("block", [7 * 20, 100 * 20, 10**6])
@pytest.mark.parametrize("penalties", [[1e-2], [1.0, 1e-2]])
def test_features_that_are_read_in_blocks_give_the_same_probe(monkeypatch, tmp_path, block, penalties):
    values, labels = blobs(600, 20, 4)
    kept = fit_linear(values, labels, classes=4, penalties=penalties, tolerance=1e-9)
    np.save(tmp_path / "features.npy", values.numpy())
    mapped = torch.from_numpy(np.load(tmp_path / "features.npy", mmap_mode="c"))
    for name, value in {"KEPT": 0, "BLOCK": block, "SAMPLED": 50}.items():
        monkeypatch.setattr(linear, name, value)
    streamed = fit_linear(mapped, labels, classes=4, penalties=penalties, tolerance=1e-9)
    assert streamed.penalty == kept.penalty
    assert streamed.held_out_accuracy == kept.held_out_accuracy
    torch.testing.assert_close(streamed.weight, kept.weight, atol=1e-6, rtol=0)
    torch.testing.assert_close(streamed.bias, kept.bias, atol=1e-6, rtol=0)
    fresh, _ = blobs(300, 20, 4, seed=1)
    assert torch.equal(streamed.predict(fresh), kept.predict(fresh))


def test_sgd_follows_the_protocol_of_the_papers():
    values, labels = blobs(500, 6, 3)
    values = (values - values.mean(0)) / values.std(0)
    found = fit_sgd(values, labels, classes=3, batch_size=64)
    classifier = torch.nn.Linear(6, 3).double()
    torch.nn.init.zeros_(classifier.weight)
    torch.nn.init.zeros_(classifier.bias)
    optimizer = torch.optim.SGD(classifier.parameters(), lr=0.3, momentum=0.9)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [60, 80], gamma=0.1)
    for epoch in range(100):
        order = permutation(key(0, "probe order", epoch, torch.arange(500)))
        assert order.sort().values.tolist() == list(range(500))
        for rows in order.split(64):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(classifier(values[rows]), labels[rows]).backward()
            optimizer.step()
        schedule.step()
    torch.testing.assert_close(found.weight.T.double(), classifier.weight.detach(), atol=1e-3, rtol=0)
    torch.testing.assert_close(found.logits(values.float()).double(), classifier(values).detach(), atol=1e-2, rtol=0)
    assert torch.equal(fit_sgd(values, labels, classes=3, batch_size=64).weight, found.weight)
    with pytest.raises(TwofoldError, match="--solver lbfgs"):
        fit_sgd(1e25 * values, labels, classes=3, epochs=3)


def test_adam_follows_the_protocol_of_frossl_on_imagenet():
    values, labels = blobs(300, 6, 3)
    values = (values - values.mean(0)) / values.std(0)
    found = fit_adam(values.float(), labels, classes=3, batch_size=64, epochs=25)
    classifier = torch.nn.Linear(6, 3)
    torch.nn.init.zeros_(classifier.weight)
    torch.nn.init.zeros_(classifier.bias)
    optimizer = torch.optim.Adam(classifier.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    for epoch in range(25):
        for rows in permutation(key(0, "probe order", epoch, torch.arange(300))).split(64):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(classifier(values[rows].float()), labels[rows]).backward()
            optimizer.step()
        schedule.step()
    torch.testing.assert_close(found.weight.T, classifier.weight.detach(), atol=1e-4, rtol=0)


@pytest.mark.parametrize("solver", list(SOLVERS))
def test_scores_equal_those_of_scikit_learn(solver):
    values, labels = blobs(300, 10, 8)
    fresh, truth = blobs(200, 10, 8, seed=1)
    values, fresh = values / values.std(0), fresh / values.std(0)
    found = linear_scores(values, labels, fresh, truth, classes=8, solver=solver)
    probe = SOLVERS[solver](values, labels, classes=8)
    logits = probe.logits(fresh).double().numpy()
    predicted = logits.argmax(1)
    assert found.top1 == pytest.approx((predicted == truth.numpy()).mean())
    assert found.top5 == pytest.approx(top_k_accuracy_score(truth, logits, k=5))
    assert found.confusion == confusion_matrix(truth, predicted, labels=range(8)).tolist()
    np.testing.assert_allclose(found.per_class, recall_score(truth, predicted, average=None))


def test_scores_of_few_classes_and_of_classes_without_test_rows():
    values, labels = blobs(90, 10, 3)
    fresh, truth = values[labels != 1], labels[labels != 1]
    found = linear_scores(values, labels, fresh, truth, classes=3)
    assert found.top5 is None
    assert found.per_class[1] is None
    assert sum(found.confusion[1]) == 0
    assert np.sum(found.confusion) == len(truth)


def test_knn_ranks_only_classes_with_votes():
    bank = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [-1.0, 0.0]])
    named = knn_ranked(bank, torch.tensor([6, 6, 2, 0]), torch.tensor([[1.0, 0.05], [-1.0, 0.5]]), k=3)
    assert named.tolist() == [[6, 2, -1, -1, -1], [0, 2, 6, -1, -1]]
    two = knn_ranked(bank, torch.tensor([6, 6, 2, 0]), torch.tensor([[1.0, 0.05]]), k=2)
    assert two.tolist() == [[6, -1, -1, -1, -1]]


def held_out_by_scikit(values: Tensor, labels: Tensor, penalty: float, folds: range) -> float:
    x, y, fold = StandardScaler().fit_transform(values), labels.numpy(), stratified_folds(labels).numpy()
    held = np.isin(fold, folds)
    predicted = np.empty_like(y)
    for number in folds:
        predicted[fold == number] = scikit_fit(x[fold != number], y[fold != number], penalty).predict(x[fold == number])
    return float((predicted == y)[held].mean())


@pytest.mark.parametrize("limit, folds", [(2000, range(5)), (100, range(1))])
def test_penalty_is_chosen_on_held_out_training_rows(monkeypatch, limit, folds):
    monkeypatch.setattr(linear, "CROSS_VALIDATED", limit)
    values, labels = blobs(150, 60, 3, spread=4.0)
    grid = [1e-3, 10.0, 1e-1, 1.0]
    probe = fit_linear(values, labels, classes=3, penalties=grid, tolerance=1e-9)
    accuracies = {penalty: held_out_by_scikit(values, labels, penalty, folds) for penalty in grid}
    best = max(accuracies.values())
    assert len(set(accuracies.values())) > 1
    assert probe.penalty == max(penalty for penalty, accuracy in accuracies.items() if accuracy == best)
    assert probe.held_out_accuracy == pytest.approx(best)
    alone = fit_linear(values, labels, classes=3, penalties=[probe.penalty], tolerance=1e-9)
    torch.testing.assert_close(probe.weight, alone.weight, atol=1e-6, rtol=0)


def test_stronger_of_equally_good_penalties_is_chosen():
    labels = torch.arange(60) % 3
    values = 100.0 * torch.eye(3)[labels] + torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    probe = fit_linear(values, labels, classes=3, penalties=[1e-4, 1e-1, 1e-2])
    assert probe.held_out_accuracy == 1.0
    assert probe.penalty == 1e-1


def test_the_penalty_does_not_depend_on_test_labels():
    values, labels = blobs(150, 60, 3, spread=4.0)
    fresh, _ = blobs(400, 60, 3, seed=1)
    chosen = fit_linear(values, labels, classes=3)
    other = next(penalty for penalty in PENALTIES if penalty != chosen.penalty)
    flattering = fit_linear(values, labels, classes=3, penalties=[other]).predict(fresh)
    agreement = (chosen.predict(fresh) == flattering).double().mean().item()
    assert agreement < 1
    assert linear_accuracy(values, labels, fresh, flattering, classes=3) == agreement


def test_the_scale_of_features_does_not_matter():
    values, labels = blobs(200, 8, 3)
    fresh, _ = blobs(100, 8, 3, seed=1)
    unit = torch.tensor([1e-6, 1e6, 1.0, 1e3, 1e-3, 7.0, 1e-2, 5.0], dtype=torch.float64)
    plain = fit_linear(values, labels, classes=3)
    scaled = fit_linear(values * unit - 2 * unit, labels, classes=3)
    assert scaled.penalty == plain.penalty
    torch.testing.assert_close(scaled.logits(fresh * unit - 2 * unit), plain.logits(fresh), atol=1e-6, rtol=0)


def test_constant_features_are_ignored():
    values, labels = blobs(200, 8, 3)
    fresh, _ = blobs(100, 8, 3, seed=1)
    plain = fit_linear(values, labels, classes=3)
    dead = torch.tensor([0.0, 1e8, 0.1], dtype=torch.float64)
    padded = fit_linear(torch.cat([values, dead.expand(200, 3)], 1), labels, classes=3)
    awake = torch.cat([fresh, dead.expand(100, 3) + 1.0], 1)
    torch.testing.assert_close(padded.logits(awake), plain.logits(fresh), atol=1e-6, rtol=0)


def test_rounding_errors_of_a_constant_feature_are_not_amplified():
    values, labels = blobs(200, 8, 3)
    plain = fit_linear(values, labels, classes=3, penalties=[1e-1])
    grain = 1e7 * (1 + 1e-9 * torch.randn(200, 1, generator=torch.Generator().manual_seed(0)).double())
    padded = fit_linear(torch.cat([values, grain], 1), labels, classes=3, penalties=[1e-1])
    drifted = torch.cat([values, 1e-6 * 1e7 + grain], 1)
    torch.testing.assert_close(padded.logits(drifted), plain.logits(values), atol=1e-3, rtol=0)


def test_classes_without_training_rows_are_never_predicted():
    values, labels = blobs(90, 10, 3)
    seen = torch.tensor([1, 4, 7])
    expected = scikit_fit(StandardScaler().fit_transform(values), labels.numpy(), 1e-2)
    probe = fit_linear(values, seen[labels], classes=9, penalties=[1e-2], tolerance=1e-9)
    np.testing.assert_allclose(probe.weight.T[seen], expected.coef_, atol=1e-5)
    fresh, _ = blobs(300, 10, 3, seed=1)
    assert set(probe.predict(100 * fresh).tolist()) <= {1, 4, 7}
    unseen = [0, 2, 3, 5, 6, 8]
    assert (probe.logits(fresh).softmax(1)[:, unseen] == 0).all()
    assert torch.isfinite(probe.bias).all()


def test_a_class_with_one_row_can_still_be_chosen():
    values, labels = blobs(100, 6, 3, spread=0.3)
    rare = torch.cat([labels, torch.tensor([3])])
    everything = torch.cat([values, 3 * values[:1]])
    probe = fit_linear(everything, rare, classes=5)
    assert probe.held_out_accuracy == pytest.approx(
        100 / 101
    )  # when its only row is held out, no training row has this class
    single = fit_linear(everything, rare, classes=5, penalties=[1e-4])
    assert single.predict(everything[-1:]).item() == 3


@pytest.mark.parametrize("labels", [[4], [4, 4, 4], [4, 0]])
def test_probe_fits_the_smallest_training_sets(labels):
    values = torch.tensor([[1.0, 2.0], [2.0, 0.0], [0.0, 1.0]])[: len(labels)]
    probe = fit_linear(values, torch.tensor(labels), classes=6)
    assert probe.predict(values).tolist() == labels


def test_folds_are_even_in_every_class_and_differ_by_seed():
    _, labels = blobs(203, 2, 4)
    fold = stratified_folds(labels)
    counts = torch.stack([torch.bincount(fold[labels == label], minlength=5) for label in range(4)])
    assert (counts.max(1).values - counts.min(1).values <= 1).all()
    assert set(torch.bincount(fold).tolist()) == {40, 41}
    assert torch.equal(fold, stratified_folds(labels))
    assert not torch.equal(fold, stratified_folds(labels, seed=1))


def test_labelled_subsets_have_equally_many_rows_of_each_class():
    labels = torch.tensor([0] * 50 + [2] * 3 + [1] * 30)[torch.randperm(83, generator=torch.Generator().manual_seed(0))]
    subsets = [labelled_subset(labels, 10, subset=number) for number in range(4)]
    for rows in subsets:
        assert torch.bincount(labels[rows]).tolist() == [10, 10, 3]
        assert len(rows.unique()) == len(rows)
    assert len({tuple(rows.tolist()) for rows in subsets}) == 4


def test_all_representations_use_the_same_labelled_rows(monkeypatch):
    values, labels = blobs(120, 5, 3)
    fresh, truth = blobs(60, 5, 3, seed=1)
    fitted_rows = []

    def spy(features: Tensor, *_: Tensor, classes: int) -> float:
        fitted_rows.append(features[:, -1].tolist())
        return 1.0 / classes

    number = torch.arange(120.0).unsqueeze(1)
    with monkeypatch.context() as patch:
        patch.setattr(probes, "linear_accuracy", spy)
        for features in (torch.cat([values, number], 1), torch.cat([-values[:, :2].exp(), number], 1)):
            assert few_label_accuracy(features, labels, fresh, truth, classes=3, labels_per_class=4) == (1 / 3, 0.0)
    assert fitted_rows[:5] == fitted_rows[5:]

    accuracies = []
    for subset in range(5):
        rows = labelled_subset(labels, 4, subset=subset)
        assert rows.tolist() == fitted_rows[subset]
        accuracies.append(linear_accuracy(values[rows], labels[rows], fresh, truth, classes=3))
    mean, sd = few_label_accuracy(values, labels, fresh, truth, classes=3, labels_per_class=4)
    assert len(set(accuracies)) > 1
    assert mean == pytest.approx(np.mean(accuracies))
    assert sd == pytest.approx(np.std(accuracies, ddof=1))
    assert few_label_accuracy(values, labels, fresh, truth, classes=3, labels_per_class=4, subsets=1)[1] == 0


@pytest.mark.parametrize("k, temperature", [(20, 0.07), (1, 0.07), (5, 10.0), (1000, 0.2), (50, 0.001)])
def test_knn_equals_that_of_scikit_learn_on_unit_vectors(k, temperature):
    values, labels = blobs(240, 16, 4, spread=3.0)
    fresh, truth = blobs(150, 16, 4, spread=3.0, seed=1)
    unit, unit_fresh = normalize(values), normalize(fresh)

    def weights(distance: np.ndarray) -> np.ndarray:
        return np.exp((1 - distance**2 / 2 - 1) / temperature)

    expected = KNeighborsClassifier(min(k, 240), weights=weights, algorithm="brute").fit(unit, labels)
    predicted = knn_predict(values, labels, fresh, k=k, temperature=temperature)
    assert (predicted.numpy() == expected.predict(unit_fresh)).all()
    accuracy = knn_accuracy(values, labels, fresh, truth, k=k, temperature=temperature)
    assert accuracy == pytest.approx(expected.score(unit_fresh, truth))


@pytest.mark.parametrize("block", [1, 7, 64, 239])
def test_knn_does_not_depend_on_the_block(block):
    values, labels = blobs(240, 16, 4, spread=3.0)
    fresh, _ = blobs(50, 16, 4, spread=3.0, seed=1)
    expected = knn_predict(values, labels, fresh, block=10_000)
    assert torch.equal(knn_predict(values, labels, fresh, block=block), expected)


def test_knn_weighs_neighbours_by_similarity():
    bank = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.5, 0.866]])
    labels = torch.tensor([2, 1, 1])
    query = torch.tensor([[3.0, 0.0]])
    assert knn_predict(bank, labels, query, k=3, temperature=0.07).tolist() == [2]
    assert knn_predict(bank, labels, query, k=3, temperature=10.0).tolist() == [1]


def test_all_accuracies_are_measured_for_all_representations():
    values, labels = blobs(150, 6, 3)
    fresh, truth = blobs(80, 6, 3, seed=1)
    noise = torch.randn(230, 6, generator=torch.Generator().manual_seed(0))
    found = measure_accuracies(
        {"blobs": (values, fresh), "noise": (noise[:150], noise[150:])}, labels, truth, classes=3
    )
    rows = [each.row for each in found]
    assert [row.name for row in rows] == ["blobs", "noise"]
    for row, (train, test) in zip(rows, [(values, fresh), (noise[:150], noise[150:])], strict=True):
        data = (train, labels, test, truth)
        assert row.linear_accuracy == linear_accuracy(*data, classes=3)
        assert (row.few_labels_accuracy, row.few_labels_sd) == few_label_accuracy(*data, classes=3)
        assert row.knn_accuracy == knn_accuracy(*data)
        assert row.labels_per_class == 10
    for measure in ("linear_accuracy", "knn_accuracy"):
        assert [each.correct[measure].double().mean().item() for each in found] == [getattr(r, measure) for r in rows]
    assert rows[0].linear_accuracy > rows[1].linear_accuracy + 0.2


def test_few_labels_accuracy_is_missing_if_there_are_no_more_labels():
    values, _ = blobs(30, 6, 3)
    fresh, truth = blobs(80, 6, 3, seed=1)
    labels = torch.arange(30) % 3
    row = measure_accuracies({"blobs": (values, fresh)}, labels, truth, classes=3)[0].row
    assert (row.few_labels_accuracy, row.few_labels_sd, row.labels_per_class) == (None, None, None)
    more = torch.cat([labels, labels[:1]])
    row = measure_accuracies({"blobs": (torch.cat([values, values[:1]]), fresh)}, more, truth, classes=3)[0].row
    assert row.few_labels_accuracy is not None
    assert row.labels_per_class == 10


def test_invalid_input_is_refused():
    values, labels = blobs(20, 4, 3)
    with pytest.raises(TwofoldError, match="20 rows and 19 labels"):
        fit_linear(values, labels[1:], classes=3)
    with pytest.raises(TwofoldError, match="from 0 to 1, found 0 to 2"):
        fit_linear(values, labels, classes=2)
    with pytest.raises(TwofoldError, match="above 0"):
        fit_linear(values, labels, classes=3, penalties=[1.0, 0.0])
    with pytest.raises(TwofoldError, match="unlabelled"):
        knn_predict(values, labels - 1, values)
    values[3, 1] = torch.nan
    for probe in (lambda: fit_linear(values, labels, classes=3), lambda: knn_predict(values, labels, values)):
        with pytest.raises(TwofoldError, match="NaN"):
            probe()


def test_top5_is_missing_with_five_classes() -> None:
    assert scores(torch.arange(5).repeat(3, 1), torch.zeros(3, dtype=torch.int64), classes=5).top5 is None
    assert scores(torch.arange(5).repeat(3, 1), torch.zeros(3, dtype=torch.int64), classes=6).top5 == 1
