"""Covariance losses in numpy, one number at a time."""

import numpy as np


def naive_frossl(
    z: np.ndarray, logarithm: bool = True, unit_trace: bool = False, centre: bool = True, weight: float = 1.0
) -> float:
    unit = []
    for view in z:
        columns = [column - column.mean() if centre else column for column in view.T]
        unit.append(np.stack([column / np.linalg.norm(column) for column in columns], axis=1))
    total = 0.0
    for v, view in enumerate(unit):
        gram = view.T @ view / (np.trace(view.T @ view) if unit_trace else 1)
        squared = sum(entry**2 for entry in gram.flat)
        total += np.log(squared) if logarithm else squared
        total += weight * sum(np.linalg.norm(view - other) ** 2 for other in unit[v + 1 :]) / z.shape[1]
    return float(total)


def naive_vicreg(z: np.ndarray) -> float:
    V, _, D = z.shape
    differences = [np.mean((z[v] - z[w]) ** 2) for v in range(V) for w in range(v + 1, V)]
    hinge = off_diagonal = 0.0
    for view in z:
        deviations = [np.sqrt(np.var(column, ddof=1) + 1e-4) for column in view.T]
        hinge += np.mean([max(0.0, 1 - deviation) for deviation in deviations])
        between = np.cov(view.T)
        off_diagonal += sum(between[i, j] ** 2 for i in range(D) for j in range(D) if i != j) / D
    return float(25 * np.mean(differences) + 25 * (2 / V) * hinge + (2 / V) * off_diagonal)


def naive_barlow_twins(z: np.ndarray) -> float:
    V, _, D = z.shape
    losses = []
    for v in range(V):
        for w in range(v + 1, V):
            c = np.corrcoef(z[v].T, z[w].T)[:D, D:]
            diagonal = sum((1 - c[i, i]) ** 2 for i in range(D))
            losses.append(diagonal + 5e-3 * sum(c[i, j] ** 2 for i in range(D) for j in range(D) if i != j))
    return float(np.mean(losses))


def naive_w_mse(z: np.ndarray, groups: list[list[int]], shrinkage: float, normalize: bool) -> float:
    V, _, D = z.shape
    white = np.zeros_like(z)
    for v in range(V):
        for rows in groups:
            part = z[v, rows]
            sigma = (1 - shrinkage) * np.cov(part.T).reshape(D, D) + shrinkage * np.eye(D)
            white[v, rows] = (np.linalg.inv(np.linalg.cholesky(sigma)) @ (part - part.mean(0)).T).T
    losses = []
    for v in range(V):
        for w in range(v + 1, V):
            for a, b in zip(white[v], white[w], strict=True):
                cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
                losses.append(2 - 2 * cosine if normalize else np.mean((a - b) ** 2))
    return float(np.mean(losses))
