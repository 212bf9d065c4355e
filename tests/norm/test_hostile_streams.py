"""Hostile uses of streams: coroutines, generators, threads, refused batches, branches."""

from __future__ import annotations

import asyncio
import copy
import threading

import pytest
import torch
from torch import Tensor, nn

import predbn

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
    predbn.remove_stream(model, "camera")
    with pytest.raises(predbn.AdaptationError, match="there is no stream"):
        predbn.reset(model, "camera")


def test_ema_under_activation_checkpointing_counts_a_batch_once():
    from torch.utils.checkpoint import checkpoint

    x = images(4).requires_grad_()
    plain, again = predbn.adapt(net(), "ema"), predbn.adapt(net(), "ema")
    plain(x).sum().backward()
    checkpoint(again, x, use_reentrant=False).sum().backward()
    with torch.no_grad():
        assert torch.equal(again(images(4, seed=5)), plain(images(4, seed=5)))
