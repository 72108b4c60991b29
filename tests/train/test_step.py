"""The training step keeps nothing alive: a timing run or an estimator must not hold the memory of networks gone by."""

import gc
import weakref

import pytest

import running


@pytest.mark.parametrize("method", ["byol", "s-diet"])
def test_a_trainer_that_is_no_longer_used_is_freed_at_once(method: str) -> None:
    running.trainer(method)  # the first one of a process imports parts of torch, which keep its frames
    gc.collect()
    gc.disable()
    try:
        trainer = running.trainer(method)
        trainer.take_step(0)
        freed = weakref.ref(trainer), weakref.ref(trainer.method)
        del trainer
        assert [each() for each in freed] == [None, None]
    finally:
        gc.enable()
