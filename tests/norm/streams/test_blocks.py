"""Stream blocks belong to their thread, coroutine or generator."""

import asyncio
import contextlib
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import predbn

from ..models import images, net


def feed(camera: int, count: int = 3) -> list[Tensor]:
    return [images(seed=10 * camera + i, shift=2.0 * camera) for i in range(count)]


@torch.no_grad()
def alone(batches: list[Tensor], strategy: str = "ema") -> list[Tensor]:
    model = predbn.adapt(net(), strategy)
    return [model(x) for x in batches]


@cache
def fed_alone(camera: int, count: int = 3, strategy: str = "ema") -> list[Tensor]:
    return alone(feed(camera, count), strategy)


def assert_equal(found: list[Tensor], wanted: list[Tensor]) -> None:
    assert len(found) == len(wanted)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("strategy", ["ema", "frozen", "auto_stream(calibrated=False)"])
def test_coroutines_do_not_write_into_each_others_streams(strategy):
    model = predbn.adapt(net(), strategy)
    predict = torch.no_grad()(model)

    async def watch(camera: int) -> list[Tensor]:
        found = []
        with predbn.stream(model, f"camera-{camera}"):
            for x in feed(camera):
                await asyncio.sleep(0)
                found.append(predict(x))
        return found

    async def main() -> list[list[Tensor]]:
        return await asyncio.gather(*(watch(camera) for camera in (1, 2, 3)))

    for camera, found in enumerate(asyncio.run(main()), start=1):
        assert_equal(found, fed_alone(camera, strategy=strategy))
    assert_equal([predict(feed(0)[0])], fed_alone(0, 1, strategy))


def open_directly(model, camera):
    return predbn.stream(model, camera)


@contextlib.contextmanager
def open_in_a_context_manager(model, camera):
    with predbn.stream(model, camera):
        yield


@contextlib.contextmanager
def open_in_a_stack(model, camera):
    with contextlib.ExitStack() as stack:
        stack.enter_context(open_directly(model, camera))
        yield


@pytest.mark.parametrize("opened", [open_directly, open_in_a_context_manager, open_in_a_stack])
def test_generators_that_are_suspended_resumed_elsewhere_and_closed(opened):
    model = predbn.adapt(net(), "ema")
    predict = torch.no_grad()(model)

    def predictions(camera: int):
        with opened(model, camera):
            for x in feed(camera, 5):
                yield predict(x)

    first, second = predictions(1), predictions(2)
    found = {1: [next(first)], 2: [next(second)], 3: []}
    outside = [predict(feed(0)[0])]
    with opened(model, 3):
        found[1].append(next(first))
        found[3].append(predict(feed(3)[0]))
        for _ in range(2):
            with ThreadPoolExecutor(1) as executor:
                found[1].append(executor.submit(next, first).result(10))
        found[2].append(next(second))
        second.close()  # only its own block
        found[3].append(predict(feed(3)[1]))
    first.close()
    outside.append(predict(feed(0)[1]))
    for camera, results in found.items():
        assert_equal(results, fed_alone(camera, 5)[: len(results)])
    assert_equal(outside, fed_alone(0, 2))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=12), st.sampled_from(["ema", "frozen", "frozen(batches=2)"]))
def test_any_order_of_suspended_generators(order, strategy):
    """Camera 0 has no generator: its batches are predicted outside, on the default stream."""
    model = predbn.adapt(net(), strategy)
    predict = torch.no_grad()(model)

    def predictions(camera: int):
        with predbn.stream(model, camera):
            yield from map(predict, feed(camera, 12))

    generators = [map(predict, feed(0, 12)), *(predictions(camera) for camera in (1, 2, 3))]
    found: list[list[Tensor]] = [[], [], [], []]
    for camera in order:
        found[camera].append(next(generators[camera]))
    for camera, results in enumerate(found):
        assert_equal(results, fed_alone(camera, 12, strategy)[: len(results)])


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
    assert_equal(found, [fed_alone(camera)[step] for step in range(3) for camera in (1, 2)] + fed_alone(0)[:1])


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
        assert_equal(found, fed_alone(camera))


@pytest.mark.parametrize("is_part", [False, True])
@torch.no_grad()
def test_blocks_around_a_compiled_model(is_part):
    """A graph that contains the whole call cannot follow all blocks."""
    torch._dynamo.reset()
    model = predbn.adapt(net(), "ema")
    compiled = torch.compile(nn.Sequential(model) if is_part else model, backend="eager", fullgraph=True)

    async def watch() -> Tensor:
        with predbn.stream(model, "camera"):
            return compiled(feed(1)[0])

    def predict_rows() -> Tensor:
        with predbn.streams(model, ["front", "rear"] * 4):
            return compiled(feed(1)[0])

    if is_part:
        with pytest.raises(Exception, match="does not support stream blocks of coroutines"):
            asyncio.run(watch())
        with pytest.raises(Exception, match="compiled or exported model does not"):
            predict_rows()
    else:
        torch.testing.assert_close(asyncio.run(watch()), fed_alone(1)[0])
        torch.testing.assert_close(predict_rows()[::2], predbn.adapt(net(), "ema")(feed(1)[0][::2]))
        predbn.remove_stream(model, "camera")
    with predbn.stream(model, "camera"):
        torch.testing.assert_close(compiled(feed(1)[0]), fed_alone(1)[0])


def test_a_block_is_not_seen_in_another_thread_and_does_not_block_it():
    model = predbn.adapt(net(), "ema")
    predict = torch.no_grad()(model)
    with ThreadPoolExecutor(1) as executor, predbn.stream(model, "camera-1"):
        found = [predict(feed(1)[0])]
        outside = executor.submit(predict, feed(0)[0]).result(10)
        found.append(predict(feed(1)[1]))
    assert_equal([outside], fed_alone(0)[:1])
    assert_equal(found, fed_alone(1)[:2])


@pytest.mark.parametrize("strategy", ["ema(momentum=0.5)", "frozen", "frozen(batches=2)"])
def test_passes_of_threads_on_one_stream_take_turns(strategy):
    """The state is that of one order: none is lost, and no layer has seen another order than the others."""
    batches, last = [feed(camera)[0] for camera in range(3)], feed(7)[0]
    wanted = [alone([*order, last], strategy)[-1] for order in itertools.permutations(batches)]
    for attempt in range(6):
        model = predbn.adapt(net(), strategy)
        predict, barrier = torch.no_grad()(model), threading.Barrier(3)

        def run(x: Tensor, predict=predict, barrier=barrier) -> None:
            barrier.wait()
            predict(x)

        with ThreadPoolExecutor(3) as executor:
            list(executor.map(run, batches))
        later = predict(last)
        assert any(torch.allclose(later, y, atol=1e-5) for y in wanted), f"mixed states at attempt {attempt}"


@torch.no_grad()
def test_blocks_nest_and_return_to_the_default():
    model = predbn.adapt(net(), "ema")
    a, b, c = feed(1)
    found = [model(a)]
    with pytest.raises(KeyError), predbn.stream(model, "one"):
        model(c)
        with predbn.stream(model, "two"):
            model(c)
        raise KeyError
    found.append(model(b))
    assert_equal(found, alone([a, b]))
