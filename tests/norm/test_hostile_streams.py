"""Hostile uses of streams: coroutines, generators, threads, refused batches, branches."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import predbn
from predbn.norm.model_calls import watched

from .models import images, net, randomise


def alone(batches: list[Tensor], strategy: str = "ema") -> list[Tensor]:
    model = predbn.adapt(net(), strategy)
    with torch.no_grad():
        return [model(x) for x in batches]


def feed(camera: int, count: int = 3) -> list[Tensor]:
    return [images(seed=10 * camera + i, shift=2.0 * camera) for i in range(count)]


@pytest.mark.parametrize("strategy", ["ema", "frozen", "auto_stream(calibrated=False)"])
def test_coroutines_do_not_write_into_each_others_streams(strategy):
    model = predbn.adapt(net(), strategy)
    found: dict[int, list[Tensor]] = {1: [], 2: [], 3: []}

    async def watch(camera: int) -> None:
        with predbn.stream(model, f"camera-{camera}"):
            for x in feed(camera):
                await asyncio.sleep(0)
                with torch.no_grad():
                    found[camera].append(model(x))

    async def main() -> None:
        await asyncio.gather(*(watch(camera) for camera in found))

    asyncio.run(main())
    for camera, results in found.items():
        for y, wanted in zip(results, alone(feed(camera), strategy), strict=True):
            assert torch.equal(y, wanted)
    with torch.no_grad():
        assert torch.equal(model(feed(0)[0]), alone(feed(0), strategy)[0]), "the model is back on the default stream"


def test_a_suspended_generator_does_not_keep_its_stream_open():
    model = predbn.adapt(net(), "ema")

    def predictions(camera: int):
        with predbn.stream(model, f"camera-{camera}"):
            for x in feed(camera):
                with torch.no_grad():
                    y = model(x)
                yield y

    first, second = predictions(1), predictions(2)
    found = [next(first), next(second), next(first), next(second)]
    assert torch.equal(found[0], alone(feed(1))[0])
    assert torch.equal(found[1], alone(feed(2))[0])
    assert torch.equal(found[2], alone(feed(1))[1])
    assert torch.equal(found[3], alone(feed(2))[1])
    with torch.no_grad():
        assert torch.equal(model(feed(0)[0]), alone(feed(0))[0])
    first.close()
    with predbn.stream(model, "camera-3"), torch.no_grad():
        second.close()
        assert torch.equal(model(feed(3)[0]), alone(feed(3))[0]), "only the generator's own block was closed"


def test_a_generator_that_opens_its_stream_in_another_way():
    model = predbn.adapt(net(), "ema")

    def open_stream(camera: int):
        return predbn.stream(model, camera)

    def predictions(camera: int):
        with contextlib.ExitStack() as stack:
            stack.enter_context(open_stream(camera))
            for x in feed(camera):
                yield torch.no_grad()(model)(x)

    found = list(zip(predictions(1), predictions(2), strict=True))
    for step, pair in enumerate(found):
        for camera, y in enumerate(pair, start=1):
            assert torch.equal(y, alone(feed(camera))[step])


def test_a_generator_that_is_resumed_inside_of_another_block_or_thread():
    model = predbn.adapt(net(), "ema")
    predict = torch.no_grad()(model)

    @contextlib.contextmanager
    def opened(camera: int):
        with predbn.stream(model, camera):
            yield

    def predictions(camera: int):
        with opened(camera):
            for x in feed(camera, 4):
                yield predict(x)

    first = predictions(1)
    found = [next(first)]
    with predbn.stream(model, 2):
        found.append(next(first))
        other = predict(feed(2)[0])
    for _ in range(2):
        with ThreadPoolExecutor(1) as executor:
            found.append(executor.submit(next, first).result(10))
    assert [torch.equal(a, b) for a, b in zip(found, alone(feed(1, 4)), strict=True)] == [True] * 4
    assert torch.equal(other, alone(feed(2))[0])
    assert torch.equal(predict(feed(0)[0]), alone(feed(0))[0])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=12), st.sampled_from(["ema", "frozen", "frozen(batches=2)"]))
def test_any_order_of_suspended_generators(order, strategy):
    """Camera 0 has no generator: its batches are predicted outside, on the default stream."""
    model = predbn.adapt(net(), strategy)

    def predictions(camera: int):
        with predbn.stream(model, camera):
            for x in feed(camera, 12):
                with torch.no_grad():
                    y = model(x)
                yield y

    def outside():
        for x in feed(0, 12):
            with torch.no_grad():
                yield model(x)

    generators = [outside(), *(predictions(camera) for camera in (1, 2, 3))]
    found: list[list[Tensor]] = [[], [], [], []]
    for camera in order:
        found[camera].append(next(generators[camera]))
    for camera, results in enumerate(found):
        for y, wanted in zip(results, alone(feed(camera, len(results)), strategy), strict=True):
            assert torch.equal(y, wanted)


def test_a_context_manager_made_of_a_generator_keeps_its_stream_open():
    model = predbn.adapt(net(), "ema")

    @contextlib.contextmanager
    def camera(number: int):
        with predbn.stream(model, number):
            yield

    with torch.no_grad():
        with camera(1):
            found = [model(x) for x in feed(1)]
        assert torch.equal(model(feed(0)[0]), alone(feed(0))[0])
    assert all(torch.equal(y, wanted) for y, wanted in zip(found, alone(feed(1)), strict=True))


def test_asynchronous_generators():
    model = predbn.adapt(net(), "ema")
    predict = torch.no_grad()(model)

    async def predictions(camera: int):
        with predbn.stream(model, camera):
            for x in feed(camera):
                await asyncio.sleep(0)
                yield predict(x)
            with pytest.raises(predbn.AdaptationError, match="open the stream in the function that predicts"):
                await asyncio.to_thread(predict, x)

    async def main() -> list[Tensor]:
        first, second = predictions(1), predictions(2)
        found = [y for _ in range(3) for y in (await anext(first), await anext(second))]
        for generator in (first, second):
            with pytest.raises(StopAsyncIteration):
                await anext(generator)
        return [*found, predict(feed(0)[0])]

    found = asyncio.run(main())
    wanted = [alone(feed(camera))[step] for step in range(3) for camera in (1, 2)] + alone(feed(0))[:1]
    assert [torch.equal(a, b) for a, b in zip(found, wanted, strict=True)] == [True] * 7


def test_threads_and_tasks_that_a_coroutine_starts_are_on_its_stream():
    model = predbn.adapt(net(), "ema")
    predict = torch.no_grad()(model)

    async def child(x: Tensor) -> Tensor:
        return predict(x)

    async def watch(camera: int) -> list[Tensor]:
        first, second, third = feed(camera)
        with predbn.stream(model, camera):
            return [await asyncio.to_thread(predict, first), await asyncio.create_task(child(second)), predict(third)]

    async def main() -> list[list[Tensor]]:
        return await asyncio.gather(watch(1), watch(2))

    for camera, found in enumerate(asyncio.run(main()), start=1):
        assert [torch.equal(a, b) for a, b in zip(found, alone(feed(camera)), strict=True)] == [True] * 3


def test_a_compiled_model_refuses_streams_of_coroutines():
    model = predbn.adapt(net(), "ema")
    compiled = torch.compile(model, backend="eager", fullgraph=True)

    async def watch() -> None:
        with predbn.stream(model, "camera"), torch.no_grad():
            compiled(feed(1)[0])

    with pytest.raises(Exception, match="cannot tell streams of coroutines"):
        asyncio.run(watch())
    with predbn.stream(model, "camera"), torch.no_grad():
        torch.testing.assert_close(compiled(feed(1)[0]), alone(feed(1))[0])


def test_a_thread_outside_of_streams_is_on_the_default_stream():
    model = predbn.adapt(net(), "ema")
    opened, done = threading.Event(), threading.Event()
    found: list[Tensor] = []

    def outside() -> None:
        opened.wait(10)
        with torch.no_grad():
            found.append(model(feed(0)[0]))
        done.set()

    thread = threading.Thread(target=outside)
    thread.start()
    with predbn.stream(model, "camera-1"), torch.no_grad():
        first = model(feed(1)[0])
        opened.set()
        assert done.wait(10), "a stream block of one thread does not block another"
        second = model(feed(1)[1])
    thread.join()
    assert torch.equal(found[0], alone(feed(0))[0])
    assert [torch.equal(a, b) for a, b in zip([first, second], alone(feed(1)), strict=False)] == [True, True]


def test_two_threads_on_one_stream_give_the_state_of_one_order():
    a, b = feed(1)[0], feed(2)[0]
    for attempt in range(10):
        model = predbn.adapt(net(), "frozen")
        barrier = threading.Barrier(2)

        def predict(x: Tensor, model: nn.Module = model, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            with torch.no_grad():
                model(x)

        threads = [threading.Thread(target=predict, args=(x,)) for x in (a, b)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with torch.no_grad():
            later = model(feed(3)[0])
        orders = [alone([*first, feed(3)[0]], "frozen")[-1] for first in ([a, b], [b, a])]
        assert any(torch.equal(later, wanted) for wanted in orders), f"mixed states at attempt {attempt}"


def test_no_pass_of_many_threads_is_lost():
    batches = [feed(camera)[0] for camera in range(6)]
    model = predbn.adapt(net(), "ema(momentum=0.5)")
    with ThreadPoolExecutor(6) as executor:
        list(executor.map(torch.no_grad()(model), batches))
    with torch.no_grad():
        later = model(feed(7)[0])
    orders = itertools.permutations(batches)
    assert any(torch.allclose(later, alone([*o, feed(7)[0]], "ema(momentum=0.5)")[-1], atol=1e-5) for o in orders)


class Late(nn.Module):
    """Its second layer refuses a batch of one: there is one value per channel."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.BatchNorm2d(3), nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x).mean((2, 3)))


@pytest.mark.parametrize("strategy", ["frozen", "frozen(batches=2)", "ema(start='first')"])
@torch.no_grad()
def test_a_refused_batch_leaves_no_trace(strategy):
    refusing, clean = (predbn.adapt(randomise(Late()).eval(), strategy) for _ in range(2))
    with pytest.raises(predbn.AdaptationError):
        refusing(images(1, shift=9.0))
    for seed in range(3):
        assert torch.equal(refusing(images(4, seed=seed)), clean(images(4, seed=seed)))


class Failing(nn.Module):
    """Something else than a batch norm layer fails, after one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.BatchNorm2d(3), nn.BatchNorm2d(3)
        self.error: BaseException | None = None

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if self.error is not None:
            raise self.error
        return self.last(x)


@pytest.mark.parametrize("error", [RuntimeError("out of memory"), KeyboardInterrupt()])
@pytest.mark.parametrize("strategy", ["frozen", "ema", "auto_stream(calibrated=False)"])
@torch.no_grad()
def test_a_pass_that_fails_elsewhere_leaves_no_trace(strategy, error):
    failing, clean = (predbn.adapt(randomise(Failing()).eval(), strategy) for _ in range(2))
    for seed in range(3):
        failing.error = error
        with pytest.raises(type(error)):
            failing(images(8, seed=9, shift=5.0))
        failing.error = None
        try:  # as one does who catches an error of memory, and predicts half as much
            raise KeyError
        except KeyError:
            assert torch.equal(failing(images(4, seed=seed)), clean(images(4, seed=seed)))
    with ThreadPoolExecutor(1) as executor:  # nothing is locked
        assert executor.submit(torch.no_grad()(failing), images(4)).result(10).shape == (4, 3, 6, 6)


class Recursive(nn.Module):
    """Averages the predictions of an image and its mirror image."""

    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(3)

    def forward(self, x: Tensor, mirror: bool = True) -> Tensor:
        return (self(x, False) + self(x.flip(3), False)) / 2 if mirror else self.bn(x)


@torch.no_grad()
def test_a_model_that_calls_itself_is_one_pass():
    model = predbn.adapt(randomise(Recursive()).eval(), "frozen")
    model(images(4, shift=2.0))
    state = predbn.state_dict(model)["streams"]["default"]["layers"]["bn"]
    assert state["size"] == 8
    assert state["passes"] == 1


class Domains(nn.Module):
    """Domain-specific batch norm: one branch per domain."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList([nn.BatchNorm2d(3), nn.BatchNorm2d(3)])

    def forward(self, x: Tensor, domain: int) -> Tensor:
        return self.branches[domain](x)


@torch.no_grad()
def test_frozen_freezes_every_branch():
    model = predbn.adapt(randomise(Domains()).eval(), "frozen")
    model(images(4, seed=0), 0)
    model(images(4, seed=1), 1)
    wanted = predbn.adapt(nn.Sequential(copy.deepcopy(predbn.restore(copy.deepcopy(model)).branches[1])), "frozen")
    wanted(images(4, seed=1))
    for seed in (2, 3):
        assert torch.equal(model(images(4, seed=seed, shift=3.0), 1), wanted(images(4, seed=seed, shift=3.0)))


@torch.no_grad()
def test_loading_inside_a_stream_block():
    source = predbn.adapt(net(), "ema")
    for x in feed(0):
        source(x)
    state = predbn.state_dict(source)
    model = predbn.adapt(net(), "ema")
    with predbn.stream(model, "camera-1"):
        predbn.load_state_dict(model, state)
    x = feed(0, 4)[3]
    assert torch.equal(model(x), source(x))
    assert torch.equal(model(x), source(x))


@torch.no_grad()
def test_a_copy_made_inside_a_stream_block_is_on_the_default_stream():
    model = predbn.adapt(net(), "ema")
    with predbn.stream(model, "camera-1"):
        model(feed(1)[0])
        copied = copy.deepcopy(model)
    assert torch.equal(copied(feed(0)[0]), alone(feed(0))[0])


@torch.no_grad()
def test_streams_can_be_removed_and_named_by_numbers():
    model = predbn.adapt(net(), "ema")
    for name in (7, "camera"):
        with predbn.stream(model, name):
            model(feed(1)[0])
    predbn.reset(model, 7)
    with pytest.raises(predbn.AdaptationError, match="there is no stream"):
        predbn.reset(model, 8)
    assert set(predbn.state_dict(model)["streams"]) == {"default", 7, "camera"}
    for name in ("default", "nowhere"):
        with pytest.raises(predbn.AdaptationError, match="stream"):
            predbn.remove_stream(model, name)
    with predbn.stream(model, "camera"), pytest.raises(predbn.AdaptationError, match="is open here"):
        predbn.remove_stream(model, "camera")
    predbn.remove_stream(model, "camera")
    with pytest.raises(predbn.AdaptationError, match="there is no stream"):
        predbn.reset(model, "camera")


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("strategy", ["ema", "frozen", "frozen(batches=2)", "auto_stream(calibrated=False)"])
def test_activation_checkpointing_counts_a_batch_once(strategy, reentrant):
    plain, again = predbn.adapt(net(), strategy), predbn.adapt(net(), strategy)
    for seed in range(3):
        x, y = (images(4, seed=seed).requires_grad_() for _ in range(2))
        plain(x).square().sum().backward()
        checkpoint(again, y, use_reentrant=reentrant).square().sum().backward()
        torch.testing.assert_close(y.grad, x.grad)
    with torch.no_grad():
        torch.testing.assert_close(again(images(4, seed=5)), plain(images(4, seed=5)))


@torch.no_grad()
def test_hooks_of_passes_are_copied_and_removed_with_the_adaptation():
    model = predbn.adapt(net(), "frozen")
    copied = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    for x in feed(1):
        assert torch.equal(copied(x), model(x))
    assert predbn.state_dict(copied)["streams"]["default"]["passes"] == 2, "a copy counts its own passes"
    with predbn.adapted(model, "batch"):
        assert [calls.adaptation.strategy.name for _, calls in watched(model)] == ["batch"]
    assert [(module, calls.adaptation.strategy.name) for module, calls in watched(model)] == [(model, "frozen")]
    for plain in (predbn.fold(model), predbn.restore(model)):
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in plain.modules())
