"""Communication between three processes, and that a single process does not communicate."""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import twofold
from launch import in_processes
from twofold import dist
from twofold.errors import LostProcess, TwofoldError
from twofold.models import share_statistics

CPU = torch.device("cpu")


def communicate(folder: Path) -> dict[str, Any]:
    own = dist.rank()
    shares = dist.Shares(7, CPU)  # 3 + 2 + 2
    rows = torch.arange(14.0).view(1, 7, 2).index_select(1, shares.own).requires_grad_()
    whole = shares.gather(rows, 1)
    (whole * torch.arange(14.0).view(1, 7, 2)).sum().backward()
    pieces = dist.Shares(7, CPU, pieces=2)  # 4 and 3, of which 2 + 1 + 1 and 1 + 1 + 1
    with dist.one_before_the_others():
        if dist.is_first():
            time.sleep(0.3)
            (folder / "written by the first").touch()
        found = (folder / "written by the first").exists()
    try:
        dist.same_everywhere("images", "one" if own < 2 else "another")
        agreed = True
    except TwofoldError:
        agreed = False
    with pytest.raises(TwofoldError, match="3 processes cannot share 2 images"):
        dist.Shares(2, CPU)
    return {
        "own": shares.own,
        "whole": whole.detach(),
        "gradient": rows.grad,
        "pieces": pieces.own,
        "in pieces": pieces.gather(pieces.own),
        "found": found,
        "agreed": agreed,
        "told": dist.from_first(lambda: [own, "text", None]),
        "done": dist.spread([lambda number=number: (number, own) for number in range(5)]),
        "narrow": dist.all_gather(torch.full((2, 3), own, dtype=torch.bfloat16), "test"),
        "sum": dist.sum_(torch.tensor([float(own)]), "test"),
        "runs": dist.one_after_another(torch.full((2 * own, 1), own), [0, 2, 4], "test"),
    }


def fail_then_train(folder: Path) -> list[str]:
    """Train three times in one program, where the first two calls fail. The caller has not joined the processes."""
    images = (np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8), np.arange(40) % 4)
    keys = {"method": "simclr", "epochs": 1, "encoder": "conv", "map_points": 0, "batch_size": 16}
    outcomes = []
    for number, more in enumerate(({"batch_size": 41}, {"lrr": 1}, {})):
        try:
            outcomes.append(str(twofold.pretrain(images, out=folder / str(number), **keys | more).path.name))
        except TwofoldError as error:
            outcomes.append(type(error).__name__)
    return outcomes


def test_training_works_after_failed_runs_in_the_same_program(tmp_path: Path) -> None:
    outcomes = in_processes(2, fail_then_train, tmp_path, folder=tmp_path, joined=False)
    assert [words[2] for words in outcomes] == ["2", "2"]
    assert sorted(name for words in outcomes for name in words[:2]) == [
        "Followed",
        "Followed",
        "TwofoldError",
        "TwofoldError",
    ]


def test_existing_process_group_raises_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(TwofoldError, match="already has a process group"), dist.joined():
        pass


def test_a_process_that_ends_before_it_sends_its_results_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def reset(*_: object) -> None:
        raise RuntimeError("Read error: Connection reset by peer")

    monkeypatch.setattr(dist, "_joined", dist.Processes(rank=1, count=2, store=dist.torch_dist.HashStore()))
    monkeypatch.setattr(dist, "wait", lambda: None)
    monkeypatch.setattr(dist.torch_dist, "all_gather_object", reset)
    with pytest.raises(LostProcess, match="process 1 of 2 reports that another has ended"):
        dist.spread([lambda: 1, lambda: 2])


def test_three_processes_gather_sum_and_share_values(tmp_path: Path) -> None:
    results = in_processes(3, communicate, tmp_path, folder=tmp_path)
    assert [result["own"].tolist() for result in results] == [[0, 1, 2], [3, 4], [5, 6]]
    assert [result["pieces"].tolist() for result in results] == [[0, 1, 4], [2, 5], [3, 6]]
    assert [result["agreed"] for result in results] == [True, True, False]
    for rank, result in enumerate(results):
        assert torch.equal(result["whole"], torch.arange(14.0).view(1, 7, 2))
        assert torch.equal(result["gradient"], result["whole"][:, result["own"]])
        assert result["in pieces"].tolist() == list(range(7))
        assert result["found"]
        assert result["told"] == [0, "text", None]
        assert result["done"] == [(number, number % 3) for number in range(5)]
        assert torch.equal(result["narrow"], torch.arange(3, dtype=torch.bfloat16)[:, None, None].expand(3, 2, 3))
        assert result["sum"] == 3, rank
        assert result["runs"].tolist() == [[1], [1], [2], [2], [2], [2]]


def test_single_process_does_not_communicate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "WORLD_SIZE", "8")  # left over from something else, without a rank
    with dist.joined():
        assert dist.count() == 1
        assert dist.is_first()
        assert dist.from_first(lambda: 5) == 5
        assert dist.spread([lambda: 1, lambda: 2]) == [1, 2]
        assert torch.equal(dist.sum_(torch.ones(2), "test"), torch.ones(2))
        assert dist.stop_for([2]) == 2
        assert dist.stop_for([]) is None
        dist.wait()
    assert not dist.traffic()


class OwnNorm(nn.BatchNorm2d):
    pass


def test_unknown_batch_norm_raises_an_error() -> None:
    with pytest.raises(TwofoldError, match="1 is a OwnNorm"):
        share_statistics(nn.Sequential(nn.Conv2d(1, 2, 3), OwnNorm(2)))
