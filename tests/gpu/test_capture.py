"""Captured models against the same models called as they are.

Without a GPU the graphs are those of `standin_recorder.py`, which run the model again; the last test has real ones.
"""

from __future__ import annotations

import copy
import random
from functools import cache

import pytest
import torch
from torch import nn

import predbn
from predbn.gpu.capture import capture_padded
from predbn.gpu.static_segments import SegmentShape, StaticSegments, padded_size
from predbn.norm import DriftMeter, StreamSegments, UnnamedStream, predictor

from ..norm.models import images, net
from .standin_recorder import recorder

__all__ = ["recorder"]

PADDED = {False: predbn.capture, True: lambda model, graphs=8: capture_padded(model, graphs)}


@cache
def calibrated() -> nn.Module:
    return predbn.calibrate(net(), list(images(96).split(32)))


def adapted(strategy: str, **options) -> nn.Module:
    if strategy == "population":
        options["loader"] = [images(32, seed=5, shift=0.5)]
    return predbn.adapt(copy.deepcopy(calibrated()), strategy, **options)


def assert_same_streams(model: nn.Module, expected: nn.Module, tolerance: float = 1e-5) -> None:
    streams, expected_streams = (predbn.state_dict(m)["streams"] for m in (model, expected))
    torch.testing.assert_close(streams, expected_streams, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("strategy", ["ema", "auto"])
def test_on_a_cpu_the_model_is_called_as_it_is(strategy):
    model, expected = adapted(strategy), adapted(strategy)
    captured = predbn.capture(model)
    with torch.inference_mode():
        for seed in range(4):
            assert torch.equal(captured(images(12, seed=seed)), expected(images(12, seed=seed)))
    assert (captured.calls, captured.replays) == (0, 0)
    assert_same_streams(model, expected)


def test_gradients_flow_through_a_captured_model():
    model = predbn.capture(predbn.adapt(net(), "batch"))
    x = images(8).requires_grad_()
    model(x).sum().backward()
    assert x.grad is not None
    assert set(model.state_dict()) == {f"model.{name}" for name in net().state_dict()}


@pytest.mark.parametrize("graphs", [0, -1, True, 2.5])
def test_an_invalid_number_of_graphs_is_refused(graphs):
    with pytest.raises(predbn.AdaptationError, match="graphs must be a number of graphs"):
        predbn.capture(net(), graphs)


@pytest.mark.usefixtures("recorder")
@pytest.mark.parametrize("strategy", ["ema", "auto", "auto_stream"])
def test_streams_resets_and_other_strategies_between_replays(strategy):
    model, expected = adapted(strategy), adapted(strategy)
    captured = predbn.capture(model, graphs=2)
    with torch.inference_mode():
        for seed in range(20):
            x = images(12 if seed % 7 else 10, seed=seed, shift=seed / 10)
            name = "a" if seed % 5 < 3 else "b"
            for either in (expected, model) if seed == 8 else ():
                predbn.reset(either)
            for either in (expected, model) if seed == 15 else ():
                predbn.adapt(either, "prior")
            with predbn.stream(expected, name), predbn.stream(model, name):
                torch.testing.assert_close(captured(x), expected(x), atol=1e-5, rtol=1e-5)
            assert len(captured._graphs) <= 2
    assert captured.replays >= 5


@pytest.mark.usefixtures("recorder")
def test_a_saved_state_does_not_change_when_a_graph_is_replayed():
    model = predbn.adapt(net(), "ema")
    captured = predbn.capture(model)
    with torch.inference_mode():
        for seed in range(6):
            captured(images(12, seed=seed))
        saved = predbn.state_dict(model)["streams"]["default"]["bn1"]["mean"]
        before = saved.clone()
        captured(images(12, seed=9, shift=3.0))
    assert captured.replays > 2
    assert torch.equal(saved, before)


@pytest.mark.usefixtures("recorder")
def test_a_plain_model_that_is_adapted_later():
    model = net()
    captured, x = predbn.capture(model), images(8)
    with torch.inference_mode():
        for change in (lambda: None, lambda: predbn.adapt(model, "batch"), lambda: predbn.restore(model)):
            change()
            for _ in range(4):
                torch.testing.assert_close(captured(x), model(x))
    assert captured.replays == 6


def test_a_copy_of_a_captured_model_has_no_graphs_of_the_original():
    captured = predbn.capture(predbn.adapt(net(), "ema"))
    again = copy.deepcopy(captured)
    with torch.inference_mode():
        assert torch.equal(again(images(8)), captured(images(8)))
    assert again._lock is not captured._lock


@pytest.mark.parametrize(
    ("strategy", "robust", "pad"),
    [
        ("batch", True, True),
        ("population", False, True),
        ("frozen", False, True),
        ("ema", False, True),
        ("ema", True, False),
        ("auto", True, True),
        ("auto_stream", True, True),
    ],
)
@pytest.mark.usefixtures("recorder")
def test_any_sequence_of_batches(strategy, robust, pad, tmp_path):
    """Streams begin, end, go to a store and come back, and are predicted alone."""
    options = {"robust": robust, "max_streams": 4}
    model = adapted(strategy, store=tmp_path / "own", **options)
    expected = adapted(strategy, store=tmp_path / "expected", **options)
    captured, draw = PADDED[pad](model), random.Random(f"{strategy} {robust}")
    meters = DriftMeter(model), DriftMeter(expected)
    with torch.inference_mode():
        for step in range(28):
            if step < 12:  # a few streams in steady batches
                ids = [0, 0, 1, 2, 1, 2, 2] if step % 2 else [2, 2, 0, 0, 0, 1, 1]
            else:
                names = draw.sample(range(6), draw.choice([1, 2, 3, 4]))
                ids = [name for name in names for _ in range(draw.choice([2, 2, 3]))]
                draw.shuffle(ids)
            x = images(len(ids), seed=step, shift=step / 20)
            if step % 9 == 8 and strategy in ("ema", "auto_stream", "frozen"):
                for either in (model, expected):
                    predbn.remove_stream(either, ids[0])
            if step % 7 == 6:
                with predbn.stream(model, ids[0]), predbn.stream(expected, ids[0]):
                    torch.testing.assert_close(captured(x), expected(x), atol=1e-5, rtol=1e-5)
                continue
            with predbn.streams(captured, ids), predbn.streams(expected, ids):
                torch.testing.assert_close(captured(x), expected(x), atol=1e-5, rtol=1e-5)
                drifts = [meter.measure(len(ids)) for meter in meters]
            torch.testing.assert_close(drifts[0], drifts[1], atol=1e-4, rtol=1e-4, equal_nan=True)
    assert_same_streams(model, expected)
    assert captured.replays >= 4


@pytest.mark.parametrize("strategy", ["batch", "auto_stream"])
@pytest.mark.usefixtures("recorder")
def test_padding_reaches_no_stream(strategy):
    """One, three and five streams of two or three rows: each row is as in its stream alone."""
    model, alone = adapted(strategy), adapted(strategy)
    captured = capture_padded(model, graphs=100)
    batches = [
        [name for name in range(count) for _ in range(2 + (name < more))] for count in (1, 3, 5) for more in (0, 2)
    ]
    with torch.inference_mode():
        for step, ids in enumerate(batches[::-1] + batches * 3):
            x = images(len(ids), seed=step)
            with predbn.streams(captured, ids):
                predicted = captured(x)
            for name in set(ids):
                rows = [row for row, other in enumerate(ids) if other == name]
                with predbn.stream(alone, name):
                    torch.testing.assert_close(predicted[rows], alone(x[rows]), atol=1e-5, rtol=1e-5)
    assert captured.replays > 5


@pytest.mark.parametrize("strategy", ["ema", "auto_stream"])
@pytest.mark.filterwarnings("ignore:.*not finite")
@pytest.mark.usefixtures("recorder")
def test_rows_that_are_not_finite_are_left_out_of_their_stream_only(strategy):
    """Stream 1 has nothing else once, and keeps what it remembers."""
    model, expected = adapted(strategy), adapted(strategy)
    captured, ids = capture_padded(model, 8), [0, 1, 2, 1, 0, 2, 2]
    with torch.inference_mode():
        for step in range(9):
            x = images(len(ids), seed=step)
            if step in (6, 7):
                x[[0] if step == 6 else [1, 3, 5]] = torch.nan
            with predbn.streams(captured, ids), predbn.streams(expected, ids):
                torch.testing.assert_close(captured(x), expected(x), atol=1e-5, rtol=1e-5, equal_nan=True)
    assert captured.replays >= 4
    assert_same_streams(model, expected)


@pytest.mark.usefixtures("recorder")
def test_unnamed_streams_of_a_strategy_without_state_are_replayed():
    model, expected = adapted("batch"), adapted("batch")
    captured = capture_padded(model, 8)
    with torch.inference_mode():
        for step in range(6):
            x, names = images(6, seed=step), [UnnamedStream(), UnnamedStream()]
            ids = [names[row // 3] for row in range(6)]
            with predbn.streams(captured, ids), predbn.streams(expected, ids):
                torch.testing.assert_close(captured(x), expected(x), atol=1e-5, rtol=1e-5)
    assert (captured.calls, captured.replays) == (2, 4)


class ScalarToo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = predbn.adapt(net(), "batch")

    def forward(self, x):
        y = self.net(x)
        return y, y.sum()


@pytest.mark.usefixtures("recorder")
def test_a_model_that_cannot_be_padded_is_called_as_it_is_with_one_warning():
    captured = capture_padded(ScalarToo().eval(), 8)
    with torch.inference_mode(), predbn.streams(captured, [0, 0, 1, 1, 1]):
        captured(images(5))
        with pytest.warns(UserWarning, match="one row for each example"):
            captured(images(5))
        captured(images(5))  # a second warning would be an error
    assert (captured.calls, captured.replays) == (3, 0)


@pytest.mark.usefixtures("recorder")
def test_rare_shapes_do_not_replace_frequent_ones():
    captured = predbn.capture(net(), graphs=2)

    def replayed(rows: int) -> bool:
        before = captured.replays
        captured(images(rows))
        return captured.replays > before

    with torch.inference_mode():
        for step in range(60):
            captured(images(3 + step % 2 if step % 3 else 5 + step % 20))
        assert replayed(3)
        assert replayed(4)
        for _ in range(100):
            captured(images(7))
        assert replayed(7)


def test_padded_segments():
    assert [padded_size(number) for number in range(1, 18)] == [1, 2, 3, 4, 6, 6, 8, 8, *[12] * 4, *[16] * 4, 24]
    for examples in range(1, 26):
        for count in range(1, examples + 1):
            segments = StreamSegments([min(row, count - 1) for row in range(examples)], count)
            shape = SegmentShape.of(segments, pad=True)
            static = StaticSegments(shape, torch.device("cpu"))
            static.fill(segments)
            values = torch.arange(1.0, shape.rows + 1)[:, None] ** 2
            expected = segments.sum(values[:examples])
            assert torch.equal(static.sum(values)[:count], expected)
            assert torch.equal(static.size_tensor(values)[:count], segments.size_tensor(values))
            assert (static.size_tensor(values) > 0).all()
            (bucket,) = static.buckets(values.device)
            sums = (values[bucket.rows] * bucket.is_row[:, None]).view(-1, bucket.size).sum(1)
            assert torch.equal(sums[:count], expected[:, 0])


@pytest.mark.gpu
@pytest.mark.parametrize("pad", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("strategy", ["batch", "prior(N=4)", "ema", "auto", "auto(passes=4)", "auto_stream"])
def test_real_graphs_predict_remember_and_measure_what_the_model_does(strategy, dtype, pad):
    """Streams of varying sizes, two that join late, and one that is predicted alone."""
    order = [[0, 0, 1, 2, 1, 2, 2], [2, 2, 0, 0, 1, 1], [1, 1, 1, 0, 0], [2] * 4, [3, 0, 3, 0, 4, 4, 4]]
    model = copy.deepcopy(calibrated()).to("cuda", dtype).to(memory_format=torch.channels_last)
    expected = predictor(copy.deepcopy(model), strategy)
    captured = PADDED[pad](predictor(model, strategy))
    meters = DriftMeter(model), DriftMeter(expected)
    tolerance = 1e-4 if dtype == torch.float32 else 2e-2
    with torch.inference_mode(), torch.backends.cudnn.flags(allow_tf32=False):
        for step, which in enumerate([*[0, 1] * 4, 2, 3, 1, 2, 3, 0, *[4, 1, 3] * 4]):
            ids = order[which]
            x = images(len(ids), seed=step, shift=step / 20).to("cuda", dtype).to(memory_format=torch.channels_last)
            with predbn.streams(captured, ids), predbn.streams(expected, ids):
                torch.testing.assert_close(captured(x), expected(x), atol=tolerance, rtol=tolerance)
                drifts = [meter.measure(len(ids)) for meter in meters]
            torch.testing.assert_close(drifts[0], drifts[1], atol=tolerance, rtol=tolerance, equal_nan=True)
    assert_same_streams(captured.model, expected, 10 * tolerance)
    assert not captured._has_warned
    assert captured.replays >= 8
