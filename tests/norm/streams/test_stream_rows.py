"""A batch whose rows belong to several streams: every row is predicted as if its stream were alone."""

import contextvars
import copy
import pickle
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import predbn
from predbn.norm import Observation, Statistics, predictor
from predbn.norm.strategies import Ema

from ..models import images, net, randomise

STRATEGIES = [
    "train",
    "batch",
    "prior",
    "prior(N=0)",
    "ema",
    "ema(momentum=0.5, start='first')",
    "frozen",
    "frozen(batches=2)",
    "auto",
    "auto(passes=4)",
    "auto(calibrated=False)",
    "auto_stream",
    "auto_stream(calibrated=False)",
]
STATEFUL = [strategy for strategy in STRATEGIES if strategy.startswith(("ema", "frozen", "auto_stream"))]

rounds = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=9), min_size=1, max_size=4)
"""Batches, as the stream of each of their rows."""


@cache
def calibrated() -> nn.Module:
    """In double precision: a variance of two values may be so small that single precision has no digits left."""
    return predbn.calibrate(net().double(), list(images(60, seed=99).double().split(20)))


def adapted(strategy: str, **options: object) -> nn.Module:
    return predictor(copy.deepcopy(calibrated()), strategy, **options)


@cache
def six_models(strategy: str, robust: bool) -> list[nn.Module]:
    """The same ones for all examples of hypothesis: adapting takes longer than predicting."""
    return [adapted(strategy, robust=robust) for _ in range(6)]


def batch_of(ids: list[int], step: int) -> Tensor:
    """Streams have shifted differently; rows differ from batch to batch."""
    rows = [images(1, seed=100 * step + i, shift=0.5 * stream) for i, stream in enumerate(ids)]
    return torch.cat(rows).double()


def rows_of(ids: list[int], stream: int) -> list[int]:
    return [row for row, other in enumerate(ids) if other == stream]


def in_pairs(ids: list[int], strategy: str) -> list[int]:
    """Twice as many rows: a single value per channel has no variance, and is refused by these strategies."""
    return ids + ids[::-1] if strategy.startswith(("batch", "prior(N=0", "frozen", "ema(")) else ids


def assert_same_states(found: dict[str, dict], wanted: dict[str, dict]) -> None:
    for layer, state in wanted.items():
        assert set(found[layer]) == set(state)
        for key, value in state.items():
            assert type(found[layer][key]) is type(value)
            torch.testing.assert_close(found[layer][key], value, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def assert_as_alone(together: nn.Module, alone: Sequence[nn.Module], batches: list[list[int]]) -> None:
    """Every stream is predicted as by a model of its own."""
    for step, ids in enumerate(batches):
        x = batch_of(ids, step)
        with predbn.streams(together, ids):
            y = together(x)
        for stream in set(ids):
            rows = rows_of(ids, stream)
            torch.testing.assert_close(y[rows], alone[stream](x[rows]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("robust", [False, True])
@settings(max_examples=6, deadline=None)
@given(rounds)
def test_any_interleaving_is_as_each_stream_alone(strategy, robust, batches):
    together, *alone = six_models(strategy, robust)
    for model in (together, *alone):
        predbn.reset(model)
    assert_as_alone(together, alone, [in_pairs(ids, strategy) for ids in batches])
    states = predbn.state_dict(together)["streams"]
    for stream in {stream for ids in batches for stream in ids} if strategy in STATEFUL else ():
        wanted = predbn.state_dict(alone[stream])["streams"]["default"]
        assert_same_states(states[stream], wanted)


@pytest.mark.parametrize("shape", [(12, 5), (12, 5, 7), (12, 5, 3, 4), (12, 5, 2, 3, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("robust", "ids"), [(False, "abcabcbbbccc"), (True, "abcabcbbbccc"), (False, "aaaabbbbcccc")])
def test_every_shape_and_precision(shape, dtype, robust, ids):
    """Against the definition, in double precision, for unequal streams in a mixed order, and for groups."""
    torch.manual_seed(0)
    kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[len(shape)]
    layer = randomise(kind(5)).to(dtype).eval()
    x = (3 + torch.randn(shape)).to(dtype)
    alone = predbn.adapt(copy.deepcopy(layer).double(), "batch", robust=robust)
    grouped = predbn.adapt(copy.deepcopy(layer), "batch", group=4)
    model = predbn.adapt(layer, "batch", robust=robust)
    with torch.no_grad(), predbn.streams(model, list(ids)):
        found = model(x)
        if ids == "aaaabbbbcccc":
            assert torch.equal(grouped(x), found)
    assert found.dtype == dtype
    tolerance = {torch.bfloat16: 4e-2, torch.float16: 4e-3, torch.float32: 1e-5, torch.float64: 1e-10}[dtype]
    for name in "abc":
        rows = [row for row, other in enumerate(ids) if other == name]
        wanted = alone(x[rows].double())
        torch.testing.assert_close(found[rows].double(), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e200])
@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_bad_rows_reach_no_other_stream(strategy, robust, bad):
    """Stream 0 has nothing but bad rows at first, stream 1 some, stream 2 none."""
    together, alone = adapted(strategy, robust=robust), [adapted(strategy, robust=robust) for _ in range(3)]
    ids = [0, 1, 2, 1, 0, 2, 1, 2, 1]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(3):
            x = batch_of(ids, step)
            if step < 2:
                x[[0, 3, 4]] = bad
            with predbn.streams(together, ids):
                y = together(x)
            for stream, model in enumerate(alone):
                rows = rows_of(ids, stream)
                wanted = model(x[rows])
                if bad == 1e200 and stream < 2 and step < 2:
                    continue  # finite, but too large for a variance: what comes out for them is not defined
                is_finite = wanted.isfinite()
                assert torch.equal(y[rows].isfinite(), is_finite)
                torch.testing.assert_close(y[rows][is_finite], wanted[is_finite], rtol=1e-5, atol=1e-5)
    if bad != 1e200:
        counts = [[row.bad_rows for row in predbn.describe(model)] for model in alone]
        found = [row.bad_rows for row in predbn.describe(together)]
        wanted = [sum(own) for own in zip(*counts, strict=True)]
        assert found == wanted or strategy == "frozen", "a frozen stream does not look at its rows, unless others do"


class Tokens(nn.Module):
    """Every example is four rows of the layer's input, as in attention over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.bn = randomise(nn.BatchNorm1d(9))

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(x[:, 0, :4, :].flatten(0, 1).flatten(1)[:, :6].repeat(1, 2)[:, :9]).unflatten(0, (-1, 4)).mean(1)


class CalledTwice(nn.Module):
    """A layer that a pass calls twice."""

    def __init__(self) -> None:
        super().__init__()
        self.bn = randomise(nn.BatchNorm2d(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.bn(x) + 1)


def separate_parts() -> nn.Module:
    parts = nn.Sequential(CalledTwice(), nn.ReLU(), nn.Sequential(randomise(nn.BatchNorm2d(3), 5))).double().eval()
    predbn.adapt(parts[0], "ema")
    predbn.adapt(parts[2], "prior")
    return parts


def many_classes() -> nn.Module:
    """More classes than are told apart are in groups of similar ones."""
    return predbn.calibrate(net(classes=150).double(), list(images(200, seed=99).double().split(50)))


UNCALIBRATED = ["batch", "prior", "ema", "auto(calibrated=False)", "auto_stream(calibrated=False)"]
CASES = [
    *(
        (lambda s=s, r=r: predbn.adapt(Tokens().double().eval(), s, robust=r, consecutive_rows=True))
        for s in UNCALIBRATED
        for r in (0, 1)
    ),
    *((lambda s=s: predbn.adapt(CalledTwice().double().eval(), s)) for s in STATEFUL),
    *((lambda s=s: predictor(many_classes(), s)) for s in ("auto(passes=4)", "auto_stream")),
    separate_parts,
]


@pytest.mark.parametrize("make", CASES)
def test_unusual_models(make):
    together = make()
    alone = [copy.deepcopy(together) for _ in range(3)]
    assert_as_alone(together, alone, [[0, 1, 2, 0, 1, 0, 1], [1, 1, 0], [0, 0, 1, 2, 2, 0]])


def test_gradients_stay_in_their_stream():
    model, alone = adapted("batch"), adapted("batch")
    ids = [0, 1, 1, 0, 1, 0]
    x = batch_of(ids, 0).requires_grad_()
    with predbn.streams(model, ids):
        (gradient,) = torch.autograd.grad(model(x).square().sum(), x)
    for stream in (0, 1):
        part = x.detach()[rows_of(ids, stream)].requires_grad_()
        (wanted,) = torch.autograd.grad(alone(part).square().sum(), part)
        torch.testing.assert_close(gradient[rows_of(ids, stream)], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("strategy", STATEFUL)
@torch.no_grad()
def test_a_stream_alone_and_with_others_is_the_same_stream(strategy):
    """Its state goes into the table and out of it again, also in inference mode."""
    model, alone = adapted(strategy), {stream: adapted(strategy) for stream in (0, 1)}
    for step in range(6):
        ids = [[0, 1, 0, 1], [0, 0, 0], [1, 1, 0, 0, 0]][step % 3]
        x = batch_of(ids, step)
        with torch.inference_mode(step % 2 == 0):
            if len(set(ids)) == 1:
                with predbn.stream(model, 0):
                    y = model(x)
            else:
                with predbn.streams(model, ids):
                    y = model(x)
        for stream in set(ids):
            rows = rows_of(ids, stream)
            torch.testing.assert_close(y[rows], alone[stream](x[rows]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("ids", [[0, 1, 0], torch.tensor([0, 1, 0]), iter(["a", "b", "a"]), ("cam", 2, np.int64(2))])
def test_ids_of_many_kinds(ids):
    model = predbn.adapt(net(), "ema")
    with predbn.streams(model, ids):
        assert model(images(3)).shape == (3, 5)


def test_wrong_ids_are_refused():
    model = predbn.adapt(net(), "ema")
    layer = predbn.adapt(nn.BatchNorm2d(3).eval(), "batch")
    for own, ids in [(model, ["a", "b"]), (model, ["a", "a"]), (layer, ["a", "a"])]:
        with predbn.streams(own, ids), pytest.raises(predbn.AdaptationError, match=r"3 examples.* got 2 ids"):
            own(images(3))
    for ids, message in [
        ("ab", "takes a list"),
        (7, "takes a list"),
        ([], "got no ids"),
    ]:
        with pytest.raises(predbn.AdaptationError, match=message), predbn.streams(model, ids):
            pass
    with predbn.streams(model, ["a", "b"]), pytest.raises(predbn.AdaptationError, match="those of one source"):
        predbn.calibrate(model, [images(2)])
    with predbn.stream(model, "a"):
        model(images(3))
    with pytest.raises(predbn.AdaptationError, match="not adapted"), predbn.streams(net(), ["a"]):
        pass


@dataclass(frozen=True)
class OneAtATime(predbn.Strategy):
    """A strategy that knows nothing of streams."""

    def statistics(self, observation: predbn.Observation) -> predbn.Statistics:
        return observation.moments().statistics


OneAtATime.name = "one_at_a_time"  # afterwards, so that it is not found by its name


def test_what_cannot_be_done_is_refused(world_of_one):
    for model, message in [
        (predbn.adapt(net(), "batch", sync=True), "cannot be combined"),
        (predbn.adapt(net(), "batch", group=2), "cannot be combined"),
        (predbn.adapt(net(), OneAtATime()), "predicts one stream at a time"),
    ]:
        with pytest.raises(predbn.AdaptationError, match=message), predbn.streams(model, ["a", "b"]):
            pass


def test_a_stream_without_a_variance_is_named():
    model = predbn.adapt(net(), "batch")
    with predbn.streams(model, ["a", "a", "b"]), pytest.raises(predbn.AdaptationError, match=r"'bn3'.* stream 'b'"):
        model(images(3))


@pytest.mark.parametrize("strategy", ["ema(start='first')", "frozen", "frozen(batches=2)"])
@torch.no_grad()
def test_a_stream_that_began_may_go_on_with_a_single_row(strategy):
    """Although others begin in the same batch, for which a single row would be refused."""
    together, *alone = (adapted(strategy) for _ in range(4))
    assert_as_alone(together, alone, [[0, 0], [0, 1, 1], [0, 1, 2, 2], [2, 1, 0]])
    with predbn.streams(together, [0, 3]), pytest.raises(predbn.AdaptationError, match="stream '3'"):
        together(batch_of([0, 3], 9))


def test_checkpointing_several_streams_is_refused():
    model = predbn.adapt(net(), "ema")
    with predbn.streams(model, [0, 1]), pytest.raises(predbn.AdaptationError, match="checkpointing"):
        checkpoint(model, images(2).requires_grad_(), use_reentrant=False).sum().backward()


@pytest.mark.parametrize("strategy", ["ema", "frozen", "auto_stream"])
@torch.no_grad()
def test_a_pass_that_fails_leaves_no_trace(strategy):
    model, ids = adapted(strategy), [0, 1, 0, 1]

    def fail(*_: object) -> None:
        raise RuntimeError("no")

    with predbn.streams(model, ids):
        model(batch_of(ids, 0))
        before = copy.deepcopy(predbn.state_dict(model)["streams"])
        handle = model.fc2.register_forward_hook(fail)
        with pytest.raises(RuntimeError, match="no"):
            model(batch_of(ids, 1))
        handle.remove()
    for stream, saved in predbn.state_dict(model)["streams"].items():
        assert_same_states(saved, before[stream])
    with ThreadPoolExecutor(1) as executor, predbn.streams(model, ids):  # nothing is locked
        run = contextvars.copy_context().run
        assert executor.submit(run, torch.no_grad()(model), batch_of(ids, 2)).result(10).shape == (4, 5)


@torch.no_grad()
def test_threads_with_overlapping_streams():
    """Each thread has streams of its own and one that all share; those of its own are as alone."""
    model = adapted("ema(momentum=0.5)")
    wanted, found = {}, {}

    def ids_of(thread: int) -> list[int]:
        return [10 * thread + 1, 10 * thread + 2, 0, 10 * thread + 1, 0]

    def predict(thread: int) -> None:
        with torch.no_grad():
            for step in range(6):
                with predbn.streams(model, ids_of(thread)):
                    found[thread, step] = model(batch_of(ids_of(thread), step))

    for thread in range(4):
        alone = {stream: adapted("ema(momentum=0.5)") for stream in ids_of(thread) if stream}
        for step in range(6):
            x = batch_of(ids_of(thread), step)
            wanted[thread, step] = {s: alone[s](x[rows_of(ids_of(thread), s)]) for s in alone}
    with ThreadPoolExecutor(4) as executor:
        list(executor.map(predict, range(4)))
    for (thread, step), by_stream in wanted.items():
        for stream, y in by_stream.items():
            own = found[thread, step][rows_of(ids_of(thread), stream)]
            torch.testing.assert_close(own, y, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_copies_and_moves_take_the_streams_along():
    model, ids = adapted("auto_stream"), [0, 1, 0, 1]
    with predbn.streams(model, ids):
        model(batch_of(ids, 0))
        copied = copy.deepcopy(model)
    pickled = pickle.loads(pickle.dumps(model))
    expected = []
    for other in (model, copied, pickled, copy.deepcopy(model).to("cpu")):
        with predbn.streams(other, ids):
            expected.append(other(batch_of(ids, 1)))
    assert all(torch.equal(y, expected[0]) for y in expected[1:3])
    other = copy.deepcopy(copied)
    other.to("meta")
    for layer in predbn.state_dict(other)["streams"][1].values():
        assert layer["mean"].device.type == "meta"


class _Marked(torch.Tensor):
    """A subclass, as other tools have them."""


@pytest.mark.parametrize("ids", ["aaabbb", "ababab"])
def test_subclasses_of_tensors_and_derivatives(ids):
    torch.manual_seed(0)
    model = predbn.adapt(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval(), "batch")
    x = torch.randn(6, 3, 8, 8)
    with torch.no_grad(), predbn.streams(model, list(ids)):
        expected = model(x)
        torch.testing.assert_close(model(x.as_subclass(_Marked)).as_subclass(torch.Tensor), expected)
        value, _ = torch.func.jvp(model, (x,), (torch.ones_like(x),))
        torch.testing.assert_close(value, expected)


def test_a_strategy_sees_the_part_that_it_is_asked_about():
    """A stream that begins and one that does not are asked about one after the other."""
    asked: list[tuple[Tensor, int]] = []

    class Spying(Ema):
        def statistics(self, observation: Observation) -> Statistics:
            statistics = super().statistics(observation)
            asked.append((observation.seen.mean, observation.bad_rows))
            return statistics

    model = predbn.adapt(nn.Sequential(nn.BatchNorm2d(3)).double().eval(), Spying())
    x = batch_of([0, 1, 1, 0], 0)
    x[3] = float("nan")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with predbn.stream(model, 1):
            model(x[1:3])
        asked.clear()
        with predbn.streams(model, [0, 1, 1, 0]):
            model(x)
    assert [bad_rows for _, bad_rows in asked] == [1, 1]
    found = sorted(mean.flatten().tolist() for mean, _ in asked)
    wanted = sorted(part.mean((0, 2, 3)).tolist() for part in (x[:1], x[1:3]))
    assert found == [pytest.approx(values) for values in wanted]
