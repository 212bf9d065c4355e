"""Whatever else is sent, a stream gets the predictions that it would get alone.

The network is in double precision, so that rounding plays no role: whatever differs comes from another stream.
"""

from __future__ import annotations

import asyncio
from functools import cache

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

import predbn
from predbn.serving import Work

from ..norm.models import net
from .running import pixels, tiny_service

STRATEGIES = ("train", "batch", "prior(N=4)", "ema", "frozen(batches=2)", "auto(passes=1)", "auto_stream")

requests = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", "d", None]), st.integers(2, 5), st.integers(0, 5)),
    min_size=1,
    max_size=12,
)
"""Of each request the stream, the number of rows, and the seed of the pictures."""


def rows(n: int, seed: int) -> torch.Tensor:
    return (pixels(n, seed).double() - 127) / 64


def model(strategy: str) -> torch.nn.Module:
    adapted = net().double()
    if "auto" in strategy:
        predbn.calibrate(adapted, [rows(32, seed) for seed in (2, 3)])
    return predbn.adapt(adapted, strategy)


@cache
def alone(strategy: str, sent: tuple[tuple[int, int], ...]) -> torch.Tensor:
    """The logits of the last of several requests of one stream, from the model itself."""
    adapted = model(strategy)
    with torch.inference_mode():
        return [adapted(rows(*request)) for request in sent][-1]


async def serve(strategy: str, sent: list, max_batch: int, pauses: list[bool]) -> list[torch.Tensor]:
    """Send requests to a service, and sometimes wait until those before have been answered."""
    service = tiny_service(strategy, model(strategy), max_batch=max_batch, max_wait=0.001)
    await service.start()
    tasks = []
    for number, (stream, count, seed) in enumerate(sent):
        tasks.append(asyncio.create_task(service.infer(Work(rows(count, seed).numpy(), stream))))
        if pauses[number % len(pauses)]:
            await asyncio.wait(tasks)
    answers = await asyncio.gather(*tasks)
    await service.stop()
    return [torch.from_numpy(answer.logits) for answer in answers]


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=8)
@given(sent=requests, max_batch=st.sampled_from([1, 7, 64]), pauses=st.lists(st.booleans(), min_size=1, max_size=5))
def test_any_interleaving_gives_every_stream_what_it_gets_alone(strategy, sent, max_batch, pauses):
    answers = asyncio.run(serve(strategy, sent, max_batch, pauses))
    past: dict[str | None, list[tuple[int, int]]] = {}
    for (stream, count, seed), answer in zip(sent, answers, strict=True):
        own = past.setdefault(stream, []) if stream is not None else []
        own.append((count, seed))
        torch.testing.assert_close(answer, alone(strategy, tuple(own)).float(), rtol=1e-5, atol=1e-5)
