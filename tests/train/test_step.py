"""The training step keeps no references: timing runs and estimators must free the memory of earlier networks."""

import gc
import weakref

import pytest

import running


@pytest.mark.parametrize("method", ["byol", "s-diet"])
def test_unused_trainer_is_freed_immediately(method: str) -> None:
    running.trainer(method)  # the first trainer imports parts of torch, which keep references to its frames
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
