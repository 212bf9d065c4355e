"""Threads: calls that are interrupted, that fail, and that run in a model that others compile."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import predbn
from predbn.norm import Packed

from .models import images, net, randomise
from .test_layer import SuperSubclass

WITH_STATE = ["ema", "frozen", "frozen(batches=2)", "auto_stream(calibrated=False)"]


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def in_threads(work: Callable[[int], Any], count: int) -> list[Any]:
    """What `work` returns in threads that begin at the same time."""
    barrier = threading.Barrier(count)

    def run(i: int) -> Any:
        barrier.wait(10)
        with torch.no_grad():
            return work(i)

    with ThreadPoolExecutor(count) as executor:
        return [future.result(60) for future in [executor.submit(run, i) for i in range(count)]]


def batches(thread: int, count: int = 6) -> list[Tensor]:
    return [images(seed=10 * thread + step, shift=float(thread)) for step in range(count)]


def warm_up(model: nn.Module, compiled: Callable[[Tensor], Tensor]) -> None:
    """Compile in one thread: PyTorch does so in each that waits for a graph, and not only if the model is adapted."""

    def predict(_: int) -> None:
        with predbn.stream(model, "warm-up"):
            for x in batches(9, 4):
                compiled(x)

    in_threads(predict, 1)


class Wrapped(nn.Module):
    """In a compiled wrapper, the whole call of the model is part of the graph."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x) * 1.0


@pytest.mark.parametrize(("strategy", "is_part"), [("batch", False), ("ema", False), ("frozen", False), ("ema", True)])
def test_threads_in_streams_of_a_compiled_model(strategy, is_part):
    model = predbn.adapt(net(), strategy)
    compiled = torch.compile(Wrapped(model) if is_part else model, backend="eager", fullgraph=True)
    warm_up(model, compiled)

    def predict(thread: int) -> list[Tensor]:
        with predbn.stream(model, f"camera-{thread}"):
            return [compiled(x) for x in batches(thread)]

    def alone(thread: int) -> list[Tensor]:
        other = predbn.adapt(net(), strategy)
        return [other(x) for x in batches(thread)]

    for thread, found in enumerate(in_threads(predict, 4)):
        with torch.no_grad():
            torch.testing.assert_close(found, alone(thread), rtol=1e-4, atol=1e-5)


def test_passes_of_a_compiled_model_on_one_stream_take_turns():
    strategy = "ema(momentum=0.5)"
    model = predbn.adapt(net(), strategy)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    warm_up(model, compiled)
    x = images()
    in_threads(lambda thread: [compiled(x) for _ in range(2)], 4)
    other = predbn.adapt(net(), strategy)
    with torch.no_grad():
        for _ in range(8):
            other(x)
        torch.testing.assert_close(compiled(images(seed=5)), other(images(seed=5)), rtol=1e-4, atol=1e-5)


def test_a_thread_that_compiles_does_not_disturb_another():
    """PyTorch says in all threads that one of them compiles."""
    model, other = predbn.adapt(net(), "ema"), predbn.adapt(net(), "ema")
    x = images()
    x[3] = float("nan")
    with torch.no_grad(), pytest.warns(UserWarning, match="not finite"):
        wanted = [other(x), other(images(seed=2))]

    def backend(graph: Any, _: Any) -> Any:
        with ThreadPoolExecutor(1) as executor:
            outputs.extend(executor.submit(torch.no_grad()(lambda: [model(x), model(images(seed=2))])).result(10))
        return graph.forward

    outputs: list[Tensor] = []
    with torch.no_grad(), pytest.warns(UserWarning, match="not finite"):
        torch.compile(nn.Linear(3, 3), backend=backend)(torch.zeros(2, 3))
    torch.testing.assert_close(outputs, wanted, rtol=0, atol=0, equal_nan=True)


class Failing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(3)
        self.error: BaseException | None = None

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn(x)
        if self.error is not None:
            raise self.error
        return x


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), GeneratorExit()])
@pytest.mark.parametrize("strategy", WITH_STATE)
@torch.no_grad()
def test_an_interrupted_call_locks_nobody_out(strategy, error):
    model, clean = (predbn.adapt(randomise(Failing()).eval(), strategy) for _ in range(2))
    model.error = error
    with pytest.raises(type(error)):
        model(images(shift=5.0))
    model.error = None
    for seed in range(2):  # in another thread, while this one calls nothing
        (found,) = in_threads(lambda _, seed=seed: model(images(seed=seed)), 1)
        assert torch.equal(found, clean(images(seed=seed)))
    (state,) = in_threads(lambda _: predbn.state_dict(model), 1)
    assert state["streams"].keys() == predbn.state_dict(clean)["streams"].keys()
    assert torch.equal(model(images(seed=3)), clean(images(seed=3)))


@torch.no_grad()
def test_a_call_that_runs_keeps_its_stream():
    """Another thread waits for it, however long it takes, and whatever was interrupted inside of it."""

    class Slow(Failing):
        def forward(self, x: Tensor) -> Tensor:
            x = super().forward(x)
            started.set()
            proceed.wait(10)
            return x

    started, proceed = threading.Event(), threading.Event()
    model, clean = predbn.adapt(randomise(Slow()).eval(), "ema"), predbn.adapt(randomise(Failing()).eval(), "ema")
    with ThreadPoolExecutor(2) as executor:
        first = executor.submit(torch.no_grad()(model), images(seed=0))
        assert started.wait(10)
        second = executor.submit(torch.no_grad()(model), images(seed=1))
        with pytest.raises(TimeoutError):
            second.result(0.3)
        proceed.set()
        assert torch.equal(first.result(10), clean(images(seed=0)))
        assert torch.equal(second.result(10), clean(images(seed=1)))


@pytest.mark.parametrize(("strategy", "compiled"), [*((s, False) for s in WITH_STATE), ("ema", True)])
@torch.no_grad()
def test_a_hook_of_the_user_that_fails_leaves_the_state_alone(strategy, compiled):
    model, clean = (predbn.adapt(net(), strategy) for _ in range(2))
    predict = torch.compile(model, backend="eager") if compiled else model
    handle = model.register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        predict(images(shift=5.0))
    handle.remove()
    torch.testing.assert_close(predict(images(seed=2)), clean(images(seed=2)), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_compiled_call_that_fails_leaves_the_state_alone():
    class Checked(Failing):
        def forward(self, x: Tensor) -> Tensor:
            x = self.bn(x)
            check(x)
            return x * 2

    @torch.compiler.disable
    def check(x: Tensor) -> None:
        if x.shape[0] == 3:
            raise ValueError("three examples")

    model, clean = (predbn.adapt(randomise(Checked()).eval(), "ema") for _ in range(2))
    compiled = torch.compile(model, backend="eager")
    torch.testing.assert_close(compiled(images()), clean(images()))
    with pytest.raises(ValueError, match="three examples"):
        compiled(images(3, shift=5.0))
    torch.testing.assert_close(compiled(images(seed=2)), clean(images(seed=2)), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_stream_that_is_cleared_while_its_state_is_read(monkeypatch):
    model = predbn.adapt(net(), "ema")
    model(images())
    stream = predbn.norm.adapted_layers(model)[0][2].shared.default_stream
    unpack = Packed.unpack

    def unpack_slowly(packed: Packed) -> Any:
        stream.clear()
        return unpack(packed)

    monkeypatch.setattr(Packed, "unpack", unpack_slowly)
    assert set(stream.states) == {"bn1", "bn2", "bn3"}
    monkeypatch.undo()
    assert stream.states == {}


@torch.no_grad()
def test_half_precision_weights_of_each_call():
    """The weights that a subclass passes are those of the call, whatever other threads pass at the same time."""

    class Scaled(SuperSubclass):
        def forward(self, x: Tensor) -> Tensor:
            return torch.nn.functional.batch_norm(
                x, self.running_mean, self.running_var, self.weight * x[0, 0, 0, 0], self.bias, False, 0.1, self.eps
            )

    model = predbn.adapt(nn.Sequential(Scaled(3)).eval().bfloat16(), "batch")
    inputs = [images(shift=float(i)).bfloat16() for i in range(4)]
    wanted = [copy.deepcopy(model)(x) for x in inputs]
    for thread, outputs in enumerate(in_threads(lambda i: [model(inputs[i]) for _ in range(50)], 4)):
        assert all(torch.equal(y, wanted[thread]) for y in outputs)
