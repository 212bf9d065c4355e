"""Which requests are predicted together, in which order, and what happens to those that are not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from predbn.serving import Prediction, RequestError, Work
from predbn.serving.batcher import Batcher

from .running import asynchronous


def work(rows: int = 1, stream: str | None = None, mark: int = 0) -> Work:
    return Work(np.full((rows, 1), mark), stream)


class Model:
    """Gives every request its own rows back, and keeps what it has predicted together. It can be stopped."""

    def __init__(self) -> None:
        self.batches: list[list[tuple[str | None, int]]] = []
        self.may_run = asyncio.Event()
        self.may_run.set()

    async def __call__(self, works: Sequence[Work]) -> list[Prediction | Exception]:
        self.batches.append([(work.stream, int(work.rows[0, 0])) for work in works])
        await self.may_run.wait()
        return [ValueError("bad") if work.rows[0, 0] < 0 else Prediction(work.rows, work.rows) for work in works]


def batcher(model: Model, **options) -> Batcher:
    settings = {"max_wait": 0.01, "max_batch": 8, "one_per_stream": True}
    return Batcher(model, **{**settings, **options})


@asynchronous
async def test_waiting_requests_of_many_streams_are_one_batch():
    model = Model()
    batches = batcher(model)
    results = await asyncio.gather(*(batches.submit(work(stream=str(i), mark=i)) for i in range(5)))
    assert [int(result.logits[0, 0]) for result in results] == list(range(5))
    assert model.batches == [[(str(i), i) for i in range(5)]]


@asynchronous
async def test_a_full_batch_does_not_wait():
    model = Model()
    batches = batcher(model, max_wait=1000.0)
    await asyncio.gather(*(batches.submit(work(4, str(i))) for i in range(2)))
    assert len(model.batches) == 1


@asynchronous
async def test_a_client_that_is_alone_does_not_wait():
    model = Model()
    batches = batcher(model, max_wait=1000.0)
    for mark in range(3):
        await batches.submit(work(mark=mark))
    assert len(model.batches) == 3


@asynchronous
async def test_a_batch_waits_for_the_clients_that_were_there_before():
    async def client(name: str) -> None:
        for mark in range(10):
            await batches.submit(work(stream=name, mark=mark))
            await asyncio.sleep(0.001 * int(name))  # they do not come back at the same time

    model = Model()
    batches = batcher(model, max_wait=1.0)
    clients = [asyncio.create_task(client(name)) for name in "1234"]
    await asyncio.gather(*clients)
    assert [len(batch) for batch in model.batches] == [4] * 10


@asynchronous
async def test_a_request_with_more_rows_than_a_batch_is_predicted_by_itself():
    model = Model()
    batches = batcher(model)
    await asyncio.gather(*(batches.submit(work(rows, str(i), i)) for i, rows in enumerate((3, 20, 4, 8))))
    assert model.batches == [[("0", 0), ("2", 2)], [("1", 1)], [("3", 3)]]


@pytest.mark.parametrize("one_per_stream", [True, False])
@asynchronous
async def test_requests_of_a_stream_stay_in_order(one_per_stream):
    model = Model()
    batches = batcher(model, one_per_stream=one_per_stream)
    sent = [("a", 6), ("b", 4), ("a", 1), ("b", 1), ("c", 1), (None, 1), (None, 1)]
    await asyncio.gather(*(batches.submit(work(rows, stream, i)) for i, (stream, rows) in enumerate(sent)))
    for stream in "ab":
        marks = [mark for batch in model.batches for name, mark in batch if name == stream]
        assert marks == sorted(marks)
    for batch in model.batches if one_per_stream else ():
        named = [name for name, _ in batch if name]
        assert len(named) == len(set(named))
    assert model.batches[0] == [("a", 0), ("c", 4), (None, 5)]


@asynchronous
async def test_a_request_that_is_wrong_fails_alone():
    batches = batcher(Model())
    good, bad = await asyncio.gather(
        batches.submit(work(mark=1)), batches.submit(work(mark=-1)), return_exceptions=True
    )
    assert int(good.logits[0, 0]) == 1
    assert str(bad) == "bad"


@asynchronous
async def test_after_a_failure_of_the_model_the_next_batch_is_predicted():
    async def fail_once(works):
        if not failed:
            failed.append(True)
            raise RuntimeError("out of memory")
        return [Prediction(work.rows, work.rows) for work in works]

    failed: list[bool] = []
    batches = Batcher(fail_once, max_wait=0, max_batch=8, one_per_stream=True)
    with pytest.raises(RuntimeError, match="out of memory"):
        await batches.submit(work())
    await batches.submit(work())


@asynchronous
async def test_closing_predicts_what_waits_and_refuses_the_rest():
    batches = batcher(Model(), max_wait=1000.0)
    waiting = asyncio.create_task(batches.submit(work(mark=3)))
    await asyncio.sleep(0.01)
    await batches.close()
    assert int((await waiting).logits[0, 0]) == 3
    with pytest.raises(RequestError, match="shutting down"):
        await batches.submit(work())


@pytest.mark.parametrize(("rows_of_base", "size"), [(0.0, 3 + 13 + 1), (1000.0, 24)])
@asynchronous
async def test_a_batch_is_filled_as_far_as_that_hardly_prolongs_it(rows_of_base, size):
    """A client that needs less than its half leaves a tenth to the other one, and all if rows take no time."""
    model = Model()
    batches = batcher(model, max_batch=24, one_per_stream=False, rows_of_base=rows_of_base)
    model.may_run.clear()
    few, many = (Work(np.zeros((1, 1)), client=client) for client in ("few", "many"))
    tasks = [asyncio.create_task(batches.submit(work)) for work in (few, many)]
    await asyncio.sleep(0.02)
    tasks += [asyncio.create_task(batches.submit(work)) for work in (*[few] * 3, *[many] * 60)]
    await asyncio.sleep(0)
    model.may_run.set()
    await asyncio.gather(*tasks)
    assert [len(batch) for batch in model.batches[:2]] == [2, size]
