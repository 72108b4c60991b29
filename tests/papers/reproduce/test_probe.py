"""Measurements of finished runs, compared with their definitions."""

import torch

from twofold_papers.reproduce.probe import alignment
from twofold_papers.reproduce.readings import alignment_of


def test_alignment_is_the_cosine_of_each_eigenvector_and_its_prediction() -> None:
    torch.manual_seed(0)
    z = torch.randn(200, 6) @ torch.diag(torch.tensor([3.0, 2.5, 2.0, 1.5, 1.0, 0.5])) @ torch.randn(6, 6)
    weight = torch.randn(6, 6)
    correlation = sum(torch.outer(row, row) for row in z.double()) / 200
    values, vectors = torch.linalg.eigh(correlation)
    expected = []
    for place in values.argsort(descending=True).tolist():
        u = vectors[:, place]
        predicted = weight.double() @ u
        expected.append((u @ predicted / predicted.norm()).item())
    torch.testing.assert_close(alignment(z, weight), torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(alignment(z, correlation.float() + torch.eye(6)), torch.ones(6).double())
    assert alignment(z, weight).abs().max() < 0.99


def test_column_of_alignment_is_the_mean_over_its_ranks() -> None:
    record = {"probes": {"alignment": [1.0, 0.5, 0.25, 0.0]}}
    assert alignment_of(2, 3).read(record) == 0.375
    assert alignment_of(1, 1).read(record) == 1.0
    assert alignment_of(1, 1).read({}) is None
