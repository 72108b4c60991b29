"""Section 2.2, Proposition 1 and the conclusion: which labels self-supervised learning uses, and what they achieve."""

import torch
from torch import Tensor, nn

from twofold import objectives
from twofold_papers.birth.claims.setting import centring, orthonormal, stacked
from twofold_papers.verify.claim import Sides, claim
from twofold_papers.verify.numerics import descended, gradient, randn

VIEWS = [(2, 5), (3, 4), (4, 7)]  # views V, samples N


def _by_sample(V: int, N: int) -> Tensor:
    """Row numbers in the library's order (view by view), listed in the paper's order (sample by sample)."""
    return torch.arange(V * N).view(V, N).T.reshape(-1)


def _labels(V: int, N: int) -> Tensor:
    """Y[VN, N] with (Y)_nj = 1 if ⌊n/V⌋ = j, else 0."""
    return (torch.arange(V * N)[:, None] // V == torch.arange(N)).double()


@claim(
    "birth",
    "Proposition 1",
    "The labels (Y)_nj = 1{⌊n/V⌋ = j} give G = YYᵀ with (G)_ij = 1{⌊i/V⌋ = ⌊j/V⌋}. Checked: YYᵀ, view_graph "
    "and label_graph are equal, for 2, 3 and 4 views",
    tolerance=0.0,
)
def proposition_1() -> Sides:
    left, right = [], []
    for V, N in VIEWS:
        order = _by_sample(V, N)
        left += [_labels(V, N) @ _labels(V, N).T] * 2
        right.append(objectives.view_graph(N, V, dtype=torch.float64)[order][:, order])
        right.append(objectives.label_graph(torch.arange(V * N) // V).double())
    return Sides(stacked(left), stacked(right))


@proposition_1.published("(Y)_nj = 1{⌊n/V⌋ = 1}, with 1 instead of j")
def _() -> Sides:
    left, right = [], []
    for V, N in VIEWS:
        order = _by_sample(V, N)
        y = (torch.arange(V * N)[:, None] // V == 1).double().expand(-1, N)
        left.append(y @ y.T)
        right.append(objectives.view_graph(N, V, dtype=torch.float64)[order][:, order])
    return Sides(stacked(left), stacked(right))


@claim(
    "birth",
    "Proposition 1 (losses)",
    "Self-supervised learning is supervised learning in which each image is a class. Checked: ridge_graph "
    "with view_graph and ridge_labels with one class per image have the same value and gradient",
    tolerance=1e-10,
)
def self_supervised_is_supervised() -> Sides:
    left, right = [], []
    for V, N in VIEWS:
        f = randn(V * N, 3)
        in_views = torch.empty_like(f)
        in_views[_by_sample(V, N)] = f

        def with_graph(f: Tensor, V: int = V, N: int = N) -> Tensor:
            return objectives.ridge_graph(f, objectives.view_graph(N, V), 0.1).total

        def with_labels(f: Tensor, V: int = V, N: int = N) -> Tensor:
            return objectives.ridge_labels(f, _labels(V, N), 0.1).total

        left += [with_graph(in_views), gradient(with_graph, in_views)[_by_sample(V, N)]]
        right += [with_labels(f), gradient(with_labels, f)]
    return Sides(stacked(left), stacked(right))


@claim(
    "birth",
    "Abstract, imbalance",
    "Classes can be weighted with w_c: the labels Y diag(√w) and the graph Y diag(w) Yᵀ are equivalent. "
    "Checked: ridge_labels and ridge_graph have the same value",
    tolerance=1e-10,
)
def imbalance() -> Sides:
    left, right = [], []
    for N in (10, 25):
        f, classes, weights = randn(N, 4), torch.arange(N) % 3, torch.rand(3, dtype=torch.float64) + 0.1
        y = torch.eye(3, dtype=torch.float64)[classes]
        left.append(objectives.ridge_labels(f, y * weights.sqrt(), 0.1).total)
        right.append(objectives.ridge_graph(f, objectives.label_graph(classes, weights), 0.1).total)
    return Sides(stacked(left), stacked(right))


# Balanced weights have torch's default type float32; 1e-6 covers its rounding.
@claim(
    "birth",
    "Abstract, imbalance (balanced)",
    "With the weights n/(C·n_c), all nonzero eigenvalues of G are n/C, as for balanced classes. Checked: the "
    "C largest eigenvalues of label_graph with balanced_weights",
    tolerance=1e-6,
)
def balanced() -> Sides:
    left, right = [], []
    for counts in ([1, 4, 9], [2, 3, 5, 20]):
        classes = torch.cat([torch.full((count,), c) for c, count in enumerate(counts)])
        C, n = len(counts), len(classes)
        graph = objectives.label_graph(classes, objectives.balanced_weights(classes, C)).double()
        left.append(torch.linalg.eigvalsh(graph)[-C:])
        right.append(torch.full((C,), n / C, dtype=torch.float64))
    return Sides(stacked(left), stacked(right))


@claim(
    "birth",
    "section 3, duplicates",
    "If only M of N images are distinct, per-image labels have an error of at least (N−M)/N, and labels that "
    "group the duplicates have 0. Checked: ridge_labels and ridge_graph at λ = 0 with features that "
    "distinguish all distinct images",
    tolerance=1e-10,
)
def duplicates() -> Sides:
    left, right = [], []
    for N, M in ((8, 5), (12, 4)):
        image = torch.arange(N) % M
        f = randn(M, M)[image]  # M features distinguish all distinct images, which is the most that any f_θ can do
        left.append(objectives.ridge_labels(f, torch.arange(N), 0.0).total)
        grouped = objectives.group_graph(torch.arange(N), image)
        left.append(objectives.ridge_graph(f, grouped, 0.0).total)
        right.append(torch.tensor([(N - M) / N, 0.0], dtype=torch.float64))
    return Sides(stacked(left), stacked(right))


def worst_error(features: Tensor, ridge: float) -> Tensor:
    """The largest ridge error over labellings y of unit variance; the library's loss is quadratic in y."""
    N = len(features)
    basis = torch.linalg.eigh(centring(N)).eigenvectors[:, 1:] * N**0.5  # centred y, with ‖y‖² = N

    def error(y: Tensor) -> Tensor:
        return objectives.ridge_labels(features, y[:, None], ridge).total

    alone = torch.stack([error(y) for y in basis.T])
    form = torch.diag(alone)
    for i in range(N - 1):
        for j in range(i):
            form[i, j] = form[j, i] = (error(basis[:, i] + basis[:, j]) - alone[i] - alone[j]) / 2
    return torch.linalg.eigvalsh(form)[-1]


@claim(
    "birth",
    "section 2.2, worst labelling",
    "The worst labelling y of unit variance has the error λN/(σ² + λN), where σ is the (N−1)-th singular "
    "value of FH. Checked: the largest error over all y, computed from ridge_labels, and this formula",
    tolerance=1e-10,
)
def worst_labelling() -> Sides:
    left, right = [], []
    for N, K in ((6, 5), (6, 9), (7, 3)):
        f, ridge = randn(N, K), 0.1
        sigma = torch.linalg.svdvals(centring(N) @ f)
        last = sigma[N - 2] if K >= N - 1 else torch.zeros(())
        left.append(worst_error(f, ridge))
        right.append(ridge * N / (last**2 + ridge * N))
    return Sides(stacked(left), stacked(right))


BUDGET = 4.0


def within_budget(x: Tensor) -> Tensor:
    """Centred features with ‖F‖² = BUDGET · N. The norm is fixed because larger features alone have a lower error."""
    x = x - x.mean(dim=0)
    return x * (BUDGET * len(x)) ** 0.5 / x.norm()


def learnt(labels: Tensor, K: int, ridge: float) -> Tensor:
    """Features that minimise the ridge error for the labels, among all features within the budget."""

    def loss(x: Tensor) -> Tensor:
        return objectives.ridge_labels(within_budget(x), labels, ridge).total

    return within_budget(descended(loss, randn(len(labels), K)))


# The loss is flat at its minimum: rounding of 1e-16 in the loss allows an error of 1e-8 in the features.
@claim(
    "birth",
    "section 2.2, best worst case",
    "If K ≥ N−1 and ‖FH‖² = BN, features learnt from per-sample labels have the worst error λ/(B/(N−1) + λ). "
    "Checked: the worst error of features that L-BFGS finds, for B = 4",
    tolerance=1e-6,
)
def per_sample_labels_reach_the_bound() -> Sides:
    left, right = [], []
    for N, K in ((6, 5), (8, 10)):
        for ridge in (0.1, 1.0):
            left.append(worst_error(learnt(torch.arange(N), K, ridge), ridge))
            right.append(torch.tensor(ridge / (BUDGET / (N - 1) + ridge), dtype=torch.float64))
    return Sides(stacked(left), stacked(right))


@claim(
    "birth",
    "section 2.2, no better",
    "No features of the same norm have a smaller worst error. Checked: 300 random features",
    tolerance=1e-12,
)
def no_features_do_better() -> Sides:
    left, right = [], []
    for N, K in ((5, 4), (6, 8)):
        for _ in range(150):
            spread = torch.rand(min(N, K), dtype=torch.float64)
            f = within_budget(orthonormal(N, min(N, K)) * spread @ orthonormal(K, min(N, K)).T)
            left.append(worst_error(f, 0.1))
            right.append(torch.tensor(0.1 / (BUDGET / (N - 1) + 0.1), dtype=torch.float64))
    return Sides(stacked(left), stacked(right), "≥")


def _per_sample_and_class(missing: int) -> tuple[Tensor, Tensor]:
    """Worst errors of N − 1 − missing features learnt from per-sample labels, and learnt from 3 classes."""
    sample, by_class = [], []
    for N in (6, 9):
        for ridge in (0.1, 1.0):
            sample.append(worst_error(learnt(torch.arange(N), N - 1 - missing, ridge), ridge))
            by_class.append(worst_error(learnt(torch.arange(N) % 3, N - 1 - missing, ridge), ridge))
    return stacked(sample), stacked(by_class)


@claim(
    "birth",
    "section 2.2, against class labels",
    "If K ≥ N−1, features learnt from per-sample labels have a smaller worst error over all labellings than "
    "features learnt from classes. Checked: features that L-BFGS finds for both, with 3 classes",
    tolerance=0.0,
)
def per_sample_below_class() -> Sides:
    return Sides(*_per_sample_and_class(missing=0), "<")


@claim(
    "birth",
    "section 2.2, few features",
    "If K < N−1, the worst error over all labellings is 1, whatever the labels were. Checked: K = N−2, with "
    "features learnt from per-sample labels and from 3 classes",
    tolerance=1e-10,
)
def few_features() -> Sides:
    return Sides(torch.cat(_per_sample_and_class(missing=1)), 1.0)


def small_network(inputs: Tensor, classes: Tensor, start: int, *, K: int, ridge: float, steps: int) -> Tensor:
    """Features of all rows from an MLP trained with the absolute objective; `start` is the seed of its weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(start)
        network = nn.Sequential(nn.Linear(inputs.shape[1], 32), nn.Tanh(), nn.Linear(32, K)).double()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        objectives.ridge_labels(within_budget(network(inputs)), classes, ridge).total.backward()
        optimizer.step()
    with torch.no_grad():
        return within_budget(network(inputs))


def random_task_errors(views: int, samples: int, features: Tensor, tasks: Tensor, ridge: float) -> Tensor:
    """The ridge error of each labelling in tasks[T, N], which gives all views of an image the same label, ±1."""
    assert len(features) == views * samples
    return torch.stack([objectives.ridge_labels(features, task.repeat(views)[:, None], ridge).total for task in tasks])


def worst_random_errors(start: int) -> tuple[Tensor, Tensor]:
    """Errors on 200 random balanced tasks, with features learnt from per-image labels and from 4 classes."""
    V, N, C, K, ridge = 2, 24, 4, 16, 0.01
    classes = torch.arange(N) % C
    images = 2 * randn(C, 20)[classes] + randn(N, 20)
    inputs = torch.cat([images + 0.3 * randn(N, 20) for _ in range(V)])
    tasks = torch.stack([torch.randperm(N) % 2 for _ in range(200)]).double() * 2 - 1
    errors = []
    for labels in (torch.arange(N), classes):
        features = small_network(inputs, labels.repeat(V), start, K=K, ridge=ridge, steps=200)
        errors.append(random_task_errors(V, N, features, tasks, ridge))
    return errors[0], errors[1]


@claim(
    "birth",
    "section 2.2, random labelings",
    "The worst error over random tasks is smaller with per-image labels than with classes. Checked: small "
    "MLPs, 200 random balanced tasks, 3 seeds",
    tolerance=0.0,
)
def worst_of_random_labelings() -> Sides:
    errors = [worst_random_errors(start) for start in range(3)]
    return Sides(stacked([e.max() for e, _ in errors]), stacked([e.max() for _, e in errors]), "<")


@claim(
    "birth",
    "section 2.2, the price",
    "On the class labels themselves, features learnt from the class labels have a smaller error than features "
    "learnt from per-sample labels. Checked: features that L-BFGS finds for both, with 3 classes",
    tolerance=0.0,
)
def specialised_features_are_better_at_their_task() -> Sides:
    sample: list[Tensor] = []
    by_class: list[Tensor] = []
    for N in (6, 9):
        for ridge in (0.1, 1.0):
            for labels, errors in ((torch.arange(N), sample), (torch.arange(N) % 3, by_class)):
                f = learnt(labels, N, ridge)
                errors.append(objectives.ridge_labels(f, torch.arange(N) % 3, ridge).total)
    return Sides(stacked(by_class), stacked(sample), "<")
