from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from predbn.data import DataError
from predbn.data.batch import batch_positions, pixels_to_device, resolve_order, rows_to_device


@given(st.lists(st.integers(0, 49), max_size=80), st.integers(1, 30), st.sampled_from([list, np.array, torch.tensor]))
def test_batches_cover_the_order_once_and_in_order(order, size, kind):
    given_order = kind(order) if order else order
    batches = batch_positions(given_order, 50, size)
    assert [position for batch in batches for position in batch.tolist()] == order
    assert all(len(batch) == size for batch in batches[:-1])
    assert all(batch.dtype == torch.int64 for batch in batches)


def test_without_an_order_all_positions_are_visited():
    assert [batch.tolist() for batch in batch_positions(None, 5, 2)] == [[0, 1], [2, 3], [4]]
    assert batch_positions(None, 0, 2) == batch_positions([], 5, 2) == []


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ([0, 5], "the position 5, but there are 5 images"),
        ([-1, 2], "the position -1"),
        ([0.5], "positions must be integers"),
        ([True, False], "positions must be integers"),
        ([[0, 1]], r"shape \(1, 2\)"),
    ],
)
def test_a_wrong_order_is_named(order, message):
    with pytest.raises(DataError, match=message):
        resolve_order(order, 5)


@pytest.mark.parametrize("size", [0, -3, 2.0, True])
def test_a_wrong_size_is_named(size):
    with pytest.raises(DataError, match="at least 1"):
        batch_positions(None, 5, size)


@given(st.permutations(range(6)), st.booleans())
def test_rows_are_copied_from_any_layout(order, turned):
    source = torch.arange(6 * 3 * 4 * 5).to(torch.uint8).reshape(6, 3, 4, 5)
    if turned:
        source = source.contiguous(memory_format=torch.channels_last)
    before = source.clone()
    picked = rows_to_device(source, torch.tensor(order), torch.device("cpu"))
    assert picked.is_contiguous()
    assert torch.equal(picked, torch.stack([source[i] for i in order]))
    picked.zero_()
    assert torch.equal(source, before)


def test_pixels_become_channels_first():
    pixels = np.random.default_rng(0).integers(0, 256, (2, 4, 5, 3), dtype=np.uint8)
    sent = pixels_to_device(pixels, torch.device("cpu"))
    assert sent.is_contiguous()
    assert np.array_equal(sent.numpy(), pixels.transpose(0, 3, 1, 2))
