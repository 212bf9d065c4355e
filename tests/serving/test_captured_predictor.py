"""A predictor whose passes are replayed, against one that calls the model.

Without a GPU the graphs are those of `tests/gpu/standin_recorder.py`.
"""

from __future__ import annotations

import copy
import random

import numpy as np
import pytest
import torch

import predbn
from predbn.gpu import capture_padded
from predbn.norm import find_strategy
from predbn.serving.errors import RequestError
from predbn.serving.predictor import Predictor
from predbn.serving.work import Work

from ..gpu.standin_recorder import recorder
from ..norm.models import images, net

__all__ = ["recorder"]

STRATEGIES = ("train", "batch", "ema", "auto_stream")


def predictor(strategy: str, device: str = "cpu") -> Predictor:
    model = predbn.calibrate(net(), list(images(96).split(32)))
    model = predbn.adapt(copy.deepcopy(model).to(device), strategy)
    return Predictor(model, find_strategy(strategy), {}, max_streams=9)


def batches(steps: int) -> list[list[Work]]:
    """Requests of three or four rows: of named streams, which also begin anew and end, and in some batches of none.

    A batch with streams that are new and others that are not is never replayed.
    """
    draw = random.Random(0)

    def request(step: int, number: int, name: str | None) -> Work:
        rows = images(draw.choice([3, 4]), seed=10 * step + number, shift=number / 2).numpy()
        return Work(rows, name, starts=draw.random() < 0.03, ends=draw.random() < 0.03)

    requests = []
    for step in range(steps):
        names = ["a", "b", "c", "d", *([None, None] if step % 3 == 0 else [])]
        chosen = draw.sample(names, draw.choice([1, 2, 3]) if step > 8 else 3)
        requests.append([request(step, number, name) for number, name in enumerate(chosen)])
    return requests


def assert_same(tested: Predictor, expected: Predictor, works: list[Work], tolerance: float) -> None:
    for ours, theirs in zip(tested.predict(works), expected.predict(works), strict=True):
        assert type(ours) is type(theirs)
        if isinstance(theirs, RequestError):
            assert str(ours) == str(theirs)
        else:
            for ours_array, theirs_array in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(ours_array, theirs_array, atol=tolerance, rtol=tolerance)
    assert tested.passes == expected.passes  # no batch failed and was split only where it is replayed
    assert tested.records.keys() == expected.records.keys()
    for name, record in expected.records.items():
        np.testing.assert_allclose(tested.records[name].seen, record.seen, atol=10 * tolerance, rtol=10 * tolerance)
        np.testing.assert_allclose(tested.records[name].used, record.used, atol=10 * tolerance, rtol=10 * tolerance)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.filterwarnings("ignore:.*not finite")
@pytest.mark.usefixtures("recorder")
def test_predictions_and_records_are_the_same(strategy):
    tested, expected = predictor(strategy), predictor(strategy)
    tested._measured = capture_padded(tested._measured, 32)
    for step, works in enumerate(batches(24)):
        if step % 8 == 7:  # a request of other rows, for which the batch fails
            works.append(Work(np.zeros((2, 4, 6, 6), np.float32), "wrong"))
        if step % 8 == 5:
            works[0].rows[0] = np.nan
        assert_same(tested, expected, works, 1e-5)
    assert tested.replays >= 4
    assert expected.replays == 0


@pytest.mark.gpu
@pytest.mark.parametrize("strategy", [*STRATEGIES, "auto", "auto(passes=4)"])
def test_a_gpu_answers_as_a_cpu(strategy):
    tested, expected = predictor(strategy, "cuda"), predictor(strategy)
    with torch.backends.cudnn.flags(allow_tf32=False):
        for works in batches(30):
            assert_same(tested, expected, works, 1e-3)
    assert tested.replays >= 4
