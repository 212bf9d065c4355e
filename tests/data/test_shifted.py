from __future__ import annotations

import numpy as np
import pytest
import torch

from predbn.data import Corrupted, DataError, ShiftedDataset, sample
from predbn.data.shifted import check_split
from predbn.shifts import ShiftError, corrupt, names


@pytest.fixture(scope="module")
def clean():
    return sample("test").take(24)


def whole(data, *split, **options):
    batches = list(data.batches(*split, **options))
    return [torch.cat(column) for column in zip(*batches, strict=True)]


def test_images_are_corrupted_by_their_index(clean):
    data = Corrupted(clean, seed=3)
    assert isinstance(data, ShiftedDataset)
    assert (len(data), data.names, data.name) == (24, list(names("all")), "cifar10-sample-test-c")
    expected = corrupt(clean.images, "gaussian_noise", 4, seed=3, index=clean.index)
    images, labels, index = whole(data, "gaussian_noise", 4, 7)
    assert torch.equal(images, expected)
    assert torch.equal(labels, clean.labels)
    assert torch.equal(index, clean.index)
    order = np.array([5, 17, 2])
    images, labels, index = whole(data, "gaussian_noise", 4, 2, order=order)
    assert torch.equal(images, expected[order])
    assert torch.equal(labels, clean.labels[order])
    assert torch.equal(index, clean.index[order])
    taken = Corrupted(clean.take(order), seed=3)
    assert torch.equal(whole(taken, "gaussian_noise", 4, 3)[0], expected[order])


def test_seed_and_constants_are_passed_on(clean):
    one, other = (whole(Corrupted(clean, seed=seed), "fog", 2, 24)[0] for seed in (0, 1))
    assert not torch.equal(one, other)
    large = whole(Corrupted(clean, constants="imagenet"), "contrast", 5, 24)[0]
    assert torch.equal(large, corrupt(clean.images, "contrast", 5, seed=0, index=clean.index, constants="imagenet"))


def test_wrong_splits_are_errors_at_once(clean):
    data = Corrupted(clean)
    with pytest.raises(DataError, match="severity is 1, but clean has severity 0"):
        data.batches("clean", 1, 5)
    with pytest.raises(DataError, match="severity is 0, but fog has the severities 1 to 5"):
        data.batches("fog", 0, 5)
    with pytest.raises(ShiftError, match="did you mean 'fog'"):
        data.batches("fogg", 1, 5)
    with pytest.raises(DataError, match="severity is True"):
        check_split("fog", True)
