"""A transform of the user's own and samples with several images: in a CUDA graph, and in several processes."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import running
from launch import in_processes
from twofold.cuda.step_graph import WARM_UP, StepGraph
from twofold.data.objects import Objects
from twofold.data.own_transform import Draw
from twofold.display import Display
from twofold.methods.own_function import pass_function
from twofold.train.step import ViewMaker
from twofold.train.trainer import Trainer
from twofold.verbs import pretrain

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


def grain(views: Tensor, draw: Draw) -> Tensor:
    return views * draw.uniform("shade", low=0.3).view(-1, 1, 1, 1) + 0.1 * draw.normal("grain", *views.shape[1:])


def waiting(views: Tensor, draw: Draw) -> Tensor:
    return views * float(views.sum().item() * 0 + 1) + 0 * draw.uniform("a").view(-1, 1, 1, 1)


def trainer(transform: object, **overrides: object) -> Trainer:
    keys = running.small("simclr", epochs=10, **overrides)
    keys |= {"augment.transform": pass_function(transform)}
    config, source = pretrain.configure("digits", "simclr", keys)
    data = pretrain.read_data(config, source, Display(quiet=True))
    objects = Objects.of(np.arange(len(data.train)) // 3)
    made = Trainer(
        config, dataclasses.replace(data, train=dataclasses.replace(data.train, objects=objects)), Display(quiet=True)
    )
    made.method.train()
    return made


@CUDA
def test_the_graph_repeats_the_views_of_the_eager_step() -> None:
    made = trainer(grain, device="cuda", compile=True)
    assert isinstance(made.run_step, StepGraph)
    plain = ViewMaker(made.augment, made.small_crops, made.memory_format)
    for step in range(WARM_UP + 4):
        made.take_step(step)
        batch, number = made.loader.batch(step + 1), torch.tensor(step + 1, device="cuda")
        expected = plain.make(batch.images, batch.position, number, batch.sizes)
        assert torch.equal(made.run_step.batch.index, batch.index)
        for views, kept in zip(expected, made.run_step.views, strict=True):
            torch.testing.assert_close(kept.float(), views.float(), rtol=0, atol=0.02)
    assert made.run_step.recorded is not None
    assert made.run_step.take_refusal() is None


@CUDA
def test_a_function_that_waits_for_the_gpu_runs_without_a_graph() -> None:
    made = trainer(waiting, device="cuda", compile=True)
    assert isinstance(made.run_step, StepGraph)
    for step in range(WARM_UP + 3):
        made.take_step(step)
    assert made.run_step.recorded is None
    assert made.run_step.take_refusal() == "an operation in the step waits for the GPU"
    assert made.run_step.take_refusal() is None


def views_of_steps(steps: int) -> list[tuple[Tensor, Tensor]]:
    """Return the positions and the views [V, N, C, S, S] that this process makes in each step."""
    made, found = trainer(grain, batch_size=23), []
    for step in range(steps):
        batch = made.loader.batch(step)
        views = made.make_views(batch.images, batch.position, torch.tensor(step), batch.sizes)[0]
        found.append((batch.position, views))
    return found


@pytest.mark.full
def test_several_processes_make_the_views_of_one(tmp_path: Path) -> None:
    expected = views_of_steps(3)
    shares = in_processes(2, views_of_steps, 3, folder=tmp_path)
    for step, (position, views) in enumerate(expected):
        assert position.tolist() == list(range(23))
        for share in shares:
            own, made = share[step]
            assert 0 < len(own) < 23
            torch.testing.assert_close(made, views[:, own], rtol=0, atol=1e-5)
    assert sorted(int(at) for share in shares for at in share[0][0]) == list(range(23))
