"""A predictor on a GPU, which replays CUDA graphs, against one on a CPU."""

from __future__ import annotations

import copy
import random

import numpy as np
import pytest
import torch

import predbn
from predbn.norm import find_strategy
from predbn.serving.errors import RequestError
from predbn.serving.predictor import Predictor
from predbn.serving.work import Work

from ..norm.models import images, net


def predictor(strategy: str, device: str = "cpu") -> Predictor:
    model = predbn.calibrate(net(), list(images(96).split(32)))
    model = predbn.adapt(copy.deepcopy(model).to(device), strategy)
    return Predictor(model, find_strategy(strategy), {}, max_streams=9, keeps_unsaved=False)


def batches(steps: int) -> list[list[Work]]:
    """Requests of three or four rows: of named streams, which also begin anew and end, and of none."""
    draw, steps_of_works = random.Random(0), []
    for step in range(steps):
        names = draw.sample(["a", "b", "c", "d", None, None], draw.choice([1, 2, 3]) if step > 8 else 3)
        steps_of_works.append(
            [
                Work(
                    images(draw.choice([3, 4]), seed=10 * step + number, shift=number / 2).numpy(),
                    name,
                    starts=draw.random() < 0.03,
                    ends=draw.random() < 0.03,
                )
                for number, name in enumerate(names)
            ]
        )
    return steps_of_works


def assert_same(tested: Predictor, expected: Predictor, works: list[Work], tolerance: float) -> None:
    for ours, theirs in zip(tested.predict(works), expected.predict(works), strict=True):
        assert type(ours) is type(theirs)
        if isinstance(theirs, RequestError):
            assert str(ours) == str(theirs)
        else:
            for actual, desired in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(actual, desired, atol=tolerance, rtol=tolerance)
    assert tested.records.keys() == expected.records.keys()
    for name, record in expected.records.items():
        np.testing.assert_allclose(tested.records[name].seen, record.seen, atol=10 * tolerance, rtol=10 * tolerance)
        np.testing.assert_allclose(tested.records[name].used, record.used, atol=10 * tolerance, rtol=10 * tolerance)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine: CUDA graphs need one")
@pytest.mark.parametrize("strategy", ["train", "batch", "ema", "auto_stream", "auto"])
def test_a_gpu_answers_as_a_cpu(strategy):
    on_gpu, expected = predictor(strategy, "cuda"), predictor(strategy)
    with torch.backends.cudnn.flags(allow_tf32=False):
        for works in batches(30):
            assert_same(on_gpu, expected, works, 1e-3)
    assert on_gpu.replays >= 4
