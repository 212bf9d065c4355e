"""Captured passes over rows of several streams, against the same model that is called as it is.

Without a GPU the graphs are those of `standin_recorder.py`; the last tests have real ones.
"""

from __future__ import annotations

import copy
import random
from functools import cache

import pytest
import torch
from torch import nn

import predbn
from predbn.norm import DriftMeter, UnnamedStream, stream_table
from predbn.norm.static_rows import RowShape, StaticRows, padded_size
from predbn.norm.stream_rows import StreamRows

from .models import images, net
from .standin_recorder import recorder

__all__ = ["recorder"]

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine: CUDA graphs need one")


@cache
def calibrated() -> nn.Module:
    return predbn.calibrate(net(), list(images(96).split(32)))


def adapted(strategy: str, **options) -> nn.Module:
    if strategy == "population":
        options["loader"] = [images(32, seed=5, shift=0.5)]
    return predbn.adapt(copy.deepcopy(calibrated()), strategy, **options)


def assert_same_streams(own: nn.Module, expected: nn.Module, tolerance: float = 1e-5) -> None:
    ours, theirs = (predbn.state_dict(model)["streams"] for model in (own, expected))
    assert ours.keys() == theirs.keys()
    for name, stream in theirs.items():
        for layer, state in stream["layers"].items():
            found = ours[name]["layers"][layer]
            assert found.keys() == state.keys()
            for key, value in state.items():
                torch.testing.assert_close(found[key], value, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(
    ("strategy", "robust", "pad"),
    [
        ("batch", False, False),
        ("batch", True, True),
        ("prior(N=4)", False, True),
        ("population", False, True),
        ("frozen", False, True),
        ("ema", True, False),
        ("ema", False, True),
        ("auto", True, True),
        ("auto_stream", True, False),
        ("auto_stream", False, True),
        ("auto_stream", True, True),
    ],
)
@pytest.mark.usefixtures("recorder")
def test_any_sequence_of_batches(strategy, robust, pad, tmp_path, monkeypatch):
    """Streams begin, end, go to a store and come back, and are predicted alone; the table grows."""
    monkeypatch.setattr(stream_table, "_FEWEST_ROWS", 2)
    options = {"robust": robust, "max_streams": 4}
    own = adapted(strategy, store=tmp_path / "own", **options)
    expected = adapted(strategy, store=tmp_path / "expected", **options)
    captured, draw = predbn.capture(own, pad=pad), random.Random(f"{strategy} {robust}")
    meters = DriftMeter(own), DriftMeter(expected)
    with torch.inference_mode():
        for step in range(28):
            if step < 12:  # a few streams in steady batches
                ids = [0, 0, 1, 2, 1, 2, 2] if step % 2 else [2, 2, 0, 0, 0, 1, 1]
            else:
                names = draw.sample(range(6), draw.choice([1, 2, 3, 4]))
                ids = [name for name in names for _ in range(draw.choice([2, 2, 3]))]
                draw.shuffle(ids)
            x = images(len(ids), seed=step, shift=step / 20)
            if step % 9 == 8 and captured._shared[0].strategy.keeps_state:
                for model in (own, expected):
                    predbn.remove_stream(model, ids[0])
            if step % 7 == 6:
                with predbn.stream(own, ids[0]), predbn.stream(expected, ids[0]):
                    torch.testing.assert_close(captured(x), expected(x), atol=1e-5, rtol=1e-5)
                continue
            with predbn.streams(captured, ids), predbn.streams(expected, ids):
                torch.testing.assert_close(captured(x), expected(x), atol=1e-5, rtol=1e-5)
                for ours, theirs in zip(*(meter.measure(len(ids)) for meter in meters), strict=True):
                    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4, equal_nan=True)
    assert_same_streams(own, expected)
    assert captured.replays >= 4


@pytest.mark.parametrize("strategy", ["batch", "ema", "auto_stream"])
@pytest.mark.usefixtures("recorder")
def test_what_fills_up_a_batch_reaches_no_stream(strategy):
    """All sizes from one stream of two rows to five of two or three: each row is as in its stream alone."""
    own, alone = adapted(strategy), adapted(strategy)
    captured = predbn.capture(own, pad=True, graphs=100)
    batches = [
        [name for name in range(count) for _ in range(2 + (name < more))] for count in range(1, 6) for more in (0, 2)
    ]
    with torch.inference_mode():
        for step, ids in enumerate(batches[::-1] + batches * 3):
            x = images(len(ids), seed=step)
            with predbn.streams(captured, ids):
                found = captured(x)
            for name in set(ids):
                rows = [row for row, other in enumerate(ids) if other == name]
                with predbn.stream(alone, name):
                    torch.testing.assert_close(found[rows], alone(x[rows]), atol=1e-5, rtol=1e-5)
    assert captured.replays > 10
    shapes = {key[1][:2] for key in captured._graphs}
    assert all(padded_size(size) == size for size, _ in shapes)


@pytest.mark.parametrize("strategy", ["ema", "auto_stream"])
@pytest.mark.filterwarnings("ignore:.*not finite")
@pytest.mark.usefixtures("recorder")
def test_rows_that_are_not_finite_are_left_out_of_their_stream_only(strategy):
    """Stream 1 has nothing else once, and keeps what it remembers."""
    own, expected = adapted(strategy), adapted(strategy)
    captured, ids = predbn.capture(own, pad=True), [0, 1, 2, 1, 0, 2, 2]
    with torch.inference_mode():
        for step in range(9):
            x = images(len(ids), seed=step)
            if step in (6, 7):
                x[[0] if step == 6 else [1, 3, 5]] = torch.nan
            with predbn.streams(captured, ids), predbn.streams(expected, ids):
                torch.testing.assert_close(captured(x), expected(x), atol=1e-5, rtol=1e-5, equal_nan=True)
    assert captured.replays >= 4
    assert_same_streams(own, expected)


@pytest.mark.usefixtures("recorder")
def test_unnamed_streams_of_a_strategy_that_remembers_nothing_are_replayed():
    own, expected = adapted("batch"), adapted("batch")
    captured = predbn.capture(own, pad=True)
    with torch.inference_mode():
        for step in range(6):
            x, names = images(6, seed=step), [UnnamedStream(), UnnamedStream()]
            ids = [names[row // 3] for row in range(6)]
            with predbn.streams(captured, ids), predbn.streams(expected, ids):
                torch.testing.assert_close(captured(x), expected(x), atol=1e-5, rtol=1e-5)
    assert (captured.calls, captured.replays) == (2, 4)


@pytest.mark.usefixtures("recorder")
def test_the_plain_network_is_filled_up_too():
    model = net()
    captured = predbn.capture(model, pad=True)
    with torch.inference_mode():
        for step, count in enumerate([5, 6, 5, 6, 5, 1, 6]):
            x = images(count, seed=step).contiguous(memory_format=torch.channels_last)
            torch.testing.assert_close(captured(x), model(x), atol=1e-5, rtol=1e-5)
    assert (captured.calls, captured.replays) == (3, 4)


class ScalarToo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, x):
        y = self.net(x)
        return y, y.sum()


@pytest.mark.usefixtures("recorder")
def test_a_model_that_cannot_be_filled_up_is_called_as_it_is_with_one_warning():
    captured = predbn.capture(ScalarToo().eval(), pad=True)
    with torch.inference_mode():
        captured(images(5))
        with pytest.warns(UserWarning, match="one row for each example"):
            captured(images(5))
        for count in (5, 8, 8, 8):
            captured(images(count))  # a second warning would be an error
    assert (captured.calls, captured.replays) == (6, 0)


@pytest.mark.usefixtures("recorder")
def test_shapes_that_come_seldom_do_not_drive_out_those_that_come_often():
    captured = predbn.capture(net(), graphs=2)
    with torch.inference_mode():
        for step in range(60):
            captured(images(3 + step % 2 if step % 3 else 5 + step % 20))
        assert {key[0][0][0][0][0] for key in captured._graphs} == {3, 4}
        for _ in range(200):
            captured(images(7))
    assert 7 in {key[0][0][0][0][0] for key in captured._graphs}


def test_sizes_that_batches_are_filled_up_to():
    assert [padded_size(number) for number in range(1, 18)] == [1, 2, 3, 4, 6, 6, 8, 8, *[12] * 4, *[16] * 4, 24]
    for examples in range(1, 70):
        for streams in range(1, examples + 1):
            rows = StreamRows([min(row, streams - 1) for row in range(examples)])
            shape = RowShape.of(rows, pad=True)
            assert shape.rows >= examples
            assert shape.streams >= streams
            assert (shape.streams < shape.rows) == (streams < examples) or shape.rows > examples
            static = StaticRows(shape, torch.device("cpu"), 1)
            static.fill(rows, [range(streams)])
            static.begin()
            values = torch.arange(1.0, shape.rows + 1)[:, None] ** 2
            sums = static.sum(values)[:, 0].tolist()
            wanted = [
                sum((row + 1.0) ** 2 for row in range(examples) if rows.positions[row] == s) for s in range(streams)
            ]
            assert sums[:streams] == wanted
            smallest = rows.sizes.index(min(rows.sizes))
            assert sums[streams:] == [wanted[smallest]] * (shape.streams - streams)
            assert static.places[0].tolist() == [*range(streams), *[smallest] * (shape.streams - streams)]
            segments = static.segments(torch.device("cpu"))
            for stream in range(streams):
                own = segments.order[segments.starts[stream] : segments.starts[stream + 1]].tolist()
                assert own == [row for row in range(examples) if rows.positions[row] == stream]


def gpu_batches() -> list[tuple[list[int], torch.Tensor]]:
    """Streams of varying sizes, two that join late, and one that is predicted alone."""
    order = [[0, 0, 1, 2, 1, 2, 2], [2, 2, 0, 0, 1, 1], [1, 1, 1, 0, 0], [2] * 4, [3, 0, 3, 0, 4, 4, 4]]
    steps = [*[0, 1] * 4, 2, 3, 1, 2, 3, 0, *[4, 1, 3] * 4]
    return [(order[which], images(len(order[which]), seed=step, shift=step / 20)) for step, which in enumerate(steps)]


@needs_gpu
@pytest.mark.parametrize("pad", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("strategy", ["batch", "prior(N=4)", "ema", "auto", "auto_stream"])
def test_real_graphs_predict_remember_and_measure_what_the_model_does(strategy, dtype, pad):
    model = copy.deepcopy(calibrated()).to("cuda", dtype).to(memory_format=torch.channels_last)
    own, expected = (predbn.adapt(copy.deepcopy(model), strategy) for _ in range(2))
    captured = predbn.capture(own, pad=pad)
    meters = DriftMeter(own), DriftMeter(expected)
    tolerance = 1e-4 if dtype == torch.float32 else 2e-2
    with torch.inference_mode(), torch.backends.cudnn.flags(allow_tf32=False):
        for ids, batch in gpu_batches():
            x = batch.to("cuda", dtype).contiguous(memory_format=torch.channels_last)
            with predbn.streams(captured, ids), predbn.streams(expected, ids):
                torch.testing.assert_close(captured(x), expected(x), atol=tolerance, rtol=tolerance)
                for ours, theirs in zip(*(meter.measure(len(ids)) for meter in meters), strict=True):
                    torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance, equal_nan=True)
    assert_same_streams(own, expected, 10 * tolerance)
    assert not captured._has_warned
    assert captured.replays >= 8
