"""The GPU kernels for rows of several streams against plain PyTorch; `test_interpreted.py` runs them without a GPU."""

from __future__ import annotations

import copy
from functools import cache

import pytest
import torch
from torch import nn

import predbn
from predbn.norm import DriftMeter, kernels, stream_table
from predbn.norm.gpu.rules import Bounds
from predbn.norm.robust import correct_clipping, robust_moments
from predbn.norm.statistics import Statistics
from predbn.norm.stream_observation import StreamObservation
from predbn.norm.stream_rows import StreamRows
from predbn.norm.stream_table import StreamTable

from ..models.kernels.conftest import bench
from .models import images, net, randomise
from .standin_recorder import recorder
from .test_gpu_kernels import LAYOUTS, RULES, clean_data, layer_rule, to_device

__all__ = ["bench", "recorder"]

IDS = [0, 3, 1, 3, 0, 3, 2, 1, 3, 0, 1, 3]
"""Streams of 3, 5, 3 and 1 examples, in a mixed order."""


@pytest.mark.parametrize(
    ("rule", "robust"), [("batch", True), ("auto with classes", True), *((rule, False) for rule in RULES)]
)
def test_a_layer_against_its_equations(bench, rule, robust):
    """Stream by stream, in double precision; one example is not finite."""
    from predbn.norm.gpu.layer import normalise_streams_by_rule

    layout = LAYOUTS[0] if robust else LAYOUTS[1]
    channels, eps, rows = 37, 1e-3, StreamRows(IDS)
    generator = torch.Generator().manual_seed(channels)

    def random(*shape):
        return torch.rand(shape, generator=generator) + 0.1

    streams = len(rows.names)
    x = 2 * random(len(IDS), channels, 5, 4) + torch.randn(len(IDS), channels, 1, 1, generator=generator) / 4
    x[1] *= 30  # an outlier
    x[5, 3, 2, 1] = torch.nan
    source, weight, bias = Statistics(random(channels), random(channels)), random(channels), random(channels)
    clean = clean_data(random, channels)
    shares, doubt, evenness = random(streams, 6).softmax(1), random(streams, 1), None
    our_rule, _ = layer_rule(rule, clean, source, shares, doubt, 1, eps)
    if rule == "auto with classes":
        evenness = torch.rand(streams, 1, generator=generator)
    bounds = Bounds(0.5, clean.var, clean.scatter, clean.clipping, evenness) if robust else None
    parts = to_device((x.contiguous(memory_format=layout), weight, bias, our_rule, bounds), bench.device)
    device = parts[0].device
    values, batch, used = normalise_streams_by_rule(
        *parts[:3], eps, [(parts[3], None)], parts[4], rows.segments(device), rows.zeros(device)
    )
    assert values.is_contiguous(memory_format=layout)
    for number, name in enumerate(rows.names):
        own = [row for row, other in enumerate(IDS) if other == name and row != 5]
        part, n = x[own].double(), len(own)
        if robust:
            var, mean = torch.var_mean(part, (2, 3), correction=0)
            found = robust_moments(mean, var, torch.ones(n, dtype=torch.bool), eps, clean.var, clean.scatter)
            share = 1.0 if evenness is None else float(evenness[number])
            expected = correct_clipping(found, clean.clipping, n, share)
        else:
            var, mean = torch.var_mean(part, (0, 2, 3), correction=0)
            expected = Statistics(mean, var)
        _, equation = layer_rule(rule, clean, source, shares, doubt, n, eps)
        chosen = equation(expected, number)
        for ours, theirs in zip((*batch, *used), (*expected, *chosen), strict=True):
            torch.testing.assert_close(ours[number].double().cpu(), theirs, rtol=1e-4, atol=1e-4)
        shape = -1, 1, 1
        wanted = (part - chosen.mean.view(shape)) / (chosen.var + eps).sqrt().view(shape)
        wanted = wanted * weight.view(shape) + bias.view(shape)
        torch.testing.assert_close(values[own].double().cpu(), wanted, rtol=1e-3, atol=1e-3)


class TwoLayers(nn.Module):
    """A batch norm on maps and one on features: the interpreter takes a second for ten calls of a layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.conv, self.bn1 = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, eps=1e-3)
        self.fc1, self.bn2, self.fc2 = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.bn1(self.conv(x))).mean((2, 3))
        return self.fc2(torch.relu(self.bn2(self.fc1(x))))


@cache
def calibrated() -> nn.Module:
    return predbn.calibrate(randomise(TwoLayers()).eval(), list(images(96).split(32)))


@pytest.fixture
def kernel_calls(monkeypatch) -> list[bool]:
    """For each call of a layer with rows of streams, whether kernels have computed it."""
    calls: list[bool] = []
    original = StreamObservation.normalise_with_kernels

    def noted(self, *args, **options):
        result = original(self, *args, **options)
        calls.append(result is not None)
        return result

    monkeypatch.setattr(StreamObservation, "normalise_with_kernels", noted)
    return calls


def batches(device: str) -> list[tuple[list[int], torch.Tensor]]:
    """Streams join and leave; all have two rows or more, because single values have no variance."""
    order = [[0, 1, 0, 1], [0, 1, 0, 1, 1], [0, 2, 2, 0, 1, 1], [2, 0, 0, 2]]
    return [(ids, images(len(ids), seed=step, shift=step / 2).to(device)) for step, ids in enumerate(order)]


@pytest.mark.parametrize(
    ("strategy", "robust"),
    [
        ("batch", True),
        ("prior", False),
        ("ema", False),
        ("ema", True),
        ("auto(passes=2)", True),
        ("auto_stream", False),
        ("auto_stream", True),
    ],
)
def test_a_model_with_and_without_kernels(bench, monkeypatch, kernel_calls, strategy, robust):
    """Predictions, what the streams remember, and how far they are off, which is looked at in one of two cases."""
    monkeypatch.setattr(stream_table, "_FEWEST_ROWS", 2)  # so that a stream which joins finds the table full
    results = []
    for has_kernels in (True, False):
        monkeypatch.setattr(kernels, "_HAS_TRITON", has_kernels)
        model = predbn.adapt(copy.deepcopy(calibrated()).to(bench.device), strategy, robust=robust)
        meter = DriftMeter(model) if robust else None
        kernel_calls.clear()
        found = []
        with torch.inference_mode(), torch.backends.cudnn.flags(allow_tf32=False):
            for ids, x in batches(bench.device)[slice(None) if strategy in ("ema", "auto_stream") else slice(2, 3)]:
                with predbn.streams(model, ids):
                    found.append(model(x).cpu())
                    if meter is not None:
                        found += [drift.cpu() for drift in meter.measure(len(ids))]
        assert set(kernel_calls) == {has_kernels}
        for stream in predbn.state_dict(model)["streams"].values():
            found += [value for state in stream["layers"].values() for _, value in sorted(state.items())]
        results.append(found)
    assert len(results[0]) == len(results[1])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("strategy", ["prior", "ema", "auto(passes=1)", "auto_stream"])
def test_a_batch_of_one_stream_with_and_without_kernels(bench, monkeypatch, strategy):
    """Predictions, drift and what the stream remembers."""
    results = []
    for has_kernels in (True, False):
        monkeypatch.setattr(kernels, "_HAS_TRITON", has_kernels)
        model = predbn.adapt(copy.deepcopy(calibrated()).to(bench.device), strategy)
        meter, found = DriftMeter(model), []
        with torch.inference_mode(), torch.backends.cudnn.flags(allow_tf32=False):
            for step in range(3):
                found += [model(images(5, seed=step, shift=float(step)).to(bench.device)), *meter.measure(5)]
        layers = predbn.state_dict(model)["streams"]["default"]["layers"]
        results.append(found + [value for state in layers.values() for _, value in sorted(state.items())])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)


class CalledTwice(nn.Module):
    """A layer that a pass calls twice, in a model with classes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.bn, self.fc = randomise(nn.BatchNorm2d(3)), nn.Linear(3, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.relu(self.bn(self.bn(x) + 1)).mean((2, 3)))


@pytest.mark.parametrize("ids", [[0, 1, 1, 0, 1], [0] * 5], ids=["streams", "one"])
@pytest.mark.parametrize("strategy", ["ema", "auto_stream"])
def test_a_layer_that_is_called_twice_in_a_pass(bench, monkeypatch, strategy, ids):
    results = []
    base = predbn.calibrate(CalledTwice().eval(), list(images(96).split(32)))
    for has_kernels in (True, False):
        monkeypatch.setattr(kernels, "_HAS_TRITON", has_kernels)
        model = predbn.adapt(copy.deepcopy(base).to(bench.device), strategy)
        with torch.inference_mode():
            for step in range(4):
                with predbn.streams(model, ids):
                    results.append(model(images(5, seed=step, shift=step / 2).to(bench.device)))
    for ours, expected in zip(results[:4], results[4:], strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("strategy", ["ema", "auto_stream"])
def test_streams_that_have_begun_are_changed_in_place(bench, monkeypatch, strategy):
    joined = []
    original = StreamTable._joined
    monkeypatch.setattr(StreamTable, "_joined", lambda *args: joined.append(1) or original(*args))
    model = predbn.adapt(copy.deepcopy(calibrated()).to(bench.device), strategy, robust=False)
    counts = []
    with torch.inference_mode():
        for step in range(4):
            with predbn.streams(model, [0, 1, 1, 0]):
                model(images(4, seed=step).to(bench.device))
            counts.append(len(joined))
    begins = {"ema": 1, "auto_stream": 2}[strategy]
    assert counts == [min(step + 1, begins) for step in range(4)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_row_is_as_in_its_stream_alone(bench, layout, dtype):
    layer = net().bn1.to(bench.device, dtype)
    x = (images(len(IDS), size=5, seed=3) + 2).repeat(1, 3, 1, 1)[:, :8]
    x = x.to(bench.device, dtype).contiguous(memory_format=layout)
    together = predbn.adapt(copy.deepcopy(layer), "ema")
    with torch.inference_mode():
        with predbn.streams(together, IDS):
            found = together(x)
        assert found.dtype == dtype
        for stream in set(IDS):
            rows = [row for row, other in enumerate(IDS) if other == stream]
            wanted = predbn.adapt(copy.deepcopy(layer), "ema")(x[rows])
            tolerance = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}[dtype]
            torch.testing.assert_close(found[rows], wanted, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("strategy", ["ema", "auto_stream"])
def test_rows_that_are_not_finite_reach_no_other_stream(bench, strategy):
    """Stream 0 has nothing but such rows once, stream 1 some; what stream 0 remembers does not change then."""
    model, alone = (predbn.adapt(copy.deepcopy(calibrated()).to(bench.device), strategy) for _ in range(2))
    ids = [0, 1, 1, 0, 1]
    with torch.inference_mode(), torch.backends.cudnn.flags(allow_tf32=False):
        for step in range(3):
            x = images(len(ids), seed=step).to(bench.device)
            bad = [0, 2, 3] if step == 1 else []
            x[bad] = torch.nan
            with predbn.streams(model, ids):
                found = model(x)
            good = [row for row in range(len(ids)) if row not in bad]
            with predbn.streams(alone, [ids[row] for row in good]):
                wanted = alone(x[good])
            torch.testing.assert_close(found[good], wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("strategy", "robust"), [("batch", True), ("ema", False), ("auto(passes=2)", True), ("auto_stream", True)]
)
def test_a_captured_model_fills_up_batches_of_streams(bench, request, strategy, robust):
    """Predictions, drift and states, with real graphs on a GPU, and without one with those of the stand-in."""
    if bench.device == "cpu":
        request.getfixturevalue("recorder")
    own, expected = (
        predbn.adapt(copy.deepcopy(calibrated()).to(bench.device), strategy, robust=robust) for _ in range(2)
    )
    captured, meters = predbn.capture(own, pad=True), (DriftMeter(own), DriftMeter(expected))
    keeps_state = strategy in ("ema", "auto_stream")
    order = [[0, 1, 0, 1, 1], [1, 1, 1, 0, 0, 0]] * (3 if keeps_state else 2)
    with torch.inference_mode(), torch.backends.cudnn.flags(allow_tf32=False):
        for step, ids in enumerate(order):
            x = images(len(ids), seed=step, shift=step / 4).to(bench.device)
            if step == len(order) - 1:
                x[0] = torch.nan
            with predbn.streams(captured, ids), predbn.streams(expected, ids):
                found, wanted = captured(x), expected(x)
                torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4, equal_nan=True)
                for ours, theirs in zip(*(meter.measure(len(ids)) for meter in meters), strict=True):
                    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    assert captured.replays >= 2
    ours, theirs = (predbn.state_dict(model)["streams"] for model in (own, expected))
    for name, stream in theirs.items():
        for layer, state in stream["layers"].items():
            for key, value in state.items():
                torch.testing.assert_close(ours[name]["layers"][layer][key], value, atol=1e-4, rtol=1e-4)
