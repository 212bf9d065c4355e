"""A batch whose rows belong to several streams: every row is predicted as if its stream were alone."""

from __future__ import annotations

import copy
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import predbn

from .models import images, net

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
    "auto(passes=1)",
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
    return predbn.adapt(copy.deepcopy(calibrated()), strategy, **options)


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


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("robust", [False, True])
@settings(max_examples=10, deadline=None)
@given(rounds)
def test_any_interleaving_is_as_each_stream_alone(strategy, robust, batches):
    together = adapted(strategy, robust=robust)
    alone = {stream: adapted(strategy, robust=robust) for stream in {stream for ids in batches for stream in ids}}
    with torch.no_grad():
        for step, ids in enumerate(in_pairs(ids, strategy) for ids in batches):
            x = batch_of(ids, step)
            with predbn.streams(together, ids):
                y = together(x)
            for stream in set(ids):
                rows = rows_of(ids, stream)
                torch.testing.assert_close(y[rows], alone[stream](x[rows]), rtol=1e-5, atol=1e-5)
    states = predbn.state_dict(together)["streams"]
    for stream, model in alone.items():
        wanted = predbn.state_dict(model)["streams"]["default"]
        assert states[stream]["passes"] == wanted["passes"]
        assert_same_states(states[stream]["layers"], wanted["layers"])
