import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from predbn.data import DataError, ImageBatch, Images


def make(count: int = 7, side: int = 4) -> Images:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 3, side, side + 1), dtype=torch.uint8, generator=generator)
    return Images(images, torch.arange(count) % 3, torch.arange(count) + 100, ("a", "b", "c"), "made")


@given(st.integers(1, 9), st.lists(st.integers(0, 6), max_size=20))
def test_batches_are_the_rows_of_the_order(size, order):
    images = make()
    batches = list(images.batches(size, order=order))
    assert all(isinstance(batch, ImageBatch) and batch.images.is_contiguous() for batch in batches)
    assert all(batch.images.dtype == torch.uint8 and batch.labels.dtype == torch.int64 for batch in batches)
    for k, position in enumerate(order):
        batch, row = batches[k // size], k % size
        assert torch.equal(batch.images[row], images.images[position])
        assert batch.labels[row] == position % 3
        assert batch.index[row] == position + 100
    assert sum(len(batch.labels) for batch in batches) == len(order)


def test_changing_a_batch_does_not_change_the_data():
    images = make()
    before = images.images.clone()
    for batch in images.batches(3):
        batch.images.zero_()
        batch.labels.zero_()
    assert torch.equal(images.images, before)
    assert images.labels.sum() > 0


@pytest.mark.parametrize(
    ("size", "order", "message"),
    [
        *((size, None, "at least 1") for size in (0, 2.0, True)),
        (2, [0, 7], "the position 7, but there are 7 images"),
        (2, [-1, 2], "the position -1"),
        (2, [0.5], "positions must be integers"),
        (2, [True, False], "positions must be integers"),
        (2, [[0, 1]], r"shape \(1, 2\)"),
    ],
)
def test_a_wrong_size_or_order_is_an_error_before_the_first_batch(size, order, message):
    with pytest.raises(DataError, match=message):
        make().batches(size, order=order)


def test_take_keeps_the_index():
    images = make()
    assert images.take(2).index.tolist() == [100, 101]
    chosen = images.take([5, 1])
    assert (chosen.index.tolist(), chosen.labels.tolist()) == ([105, 101], [2, 1])
    assert torch.equal(chosen.images, images.images[[5, 1]])
    assert len(images.take(0)) == 0
    with pytest.raises(DataError, match="cannot take 8 of them"):
        images.take(8)


def test_sums_are_those_of_the_arrays_whatever_their_strides():
    images = make()
    expected = {
        "images": hashlib.sha256(images.images.numpy().tobytes()).hexdigest(),
        "labels": hashlib.sha256(np.asarray(images.labels.numpy(), "<i8").tobytes()).hexdigest(),
    }
    assert images.sums == expected
    turned = images.images.contiguous(memory_format=torch.channels_last)
    assert Images(turned, images.labels, images.index, images.classes, "turned").sums == expected
    assert images.take([1, 0]).sums != expected
    assert images.to("cpu").sums == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": torch.zeros(7, 3, 4, 4).double()}, r"images are torch.float64 \(7, 3, 4, 4\)"),
        ({"images": torch.zeros(7, 4, 4, 3, dtype=torch.uint8)}, r"must be uint8 \[N, C, H, W\]"),
        ({"labels": torch.zeros(6, dtype=torch.int64)}, r"labels is torch.int64 \(6,\)"),
        ({"index": torch.zeros(7)}, r"index is torch.float32"),
        ({"labels": torch.full((7,), 3)}, "labels go from 3 to 3, but there are 3 classes"),
    ],
)
def test_inconsistent_tensors_are_errors(change, message):
    images = make()
    fields = {name: getattr(images, name) for name in ("images", "labels", "index", "classes", "name")}
    with pytest.raises(DataError, match=message):
        Images(**(fields | change))
