"""Which images were predicted correctly: one bit each, in the order of the images."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from predbn.evaluation.scoring import Hits, unpack_hits


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(1, 7), st.randoms(use_true_random=False))
def test_hits_are_in_the_order_of_the_indices_whatever_the_order_of_the_batches(right, size, random):
    count = len(right)
    order = list(range(count))
    random.shuffle(order)
    labels = torch.arange(count) % 3
    probabilities = torch.full((count, 3), 0.2)
    probabilities[torch.arange(count), torch.where(torch.tensor(right), labels, (labels + 1) % 3)] = 0.6
    hits = Hits()
    for step in torch.tensor(order).split(size):
        hits.update(probabilities[step], labels[step], 10 * step)
    packed = hits.pack()
    assert len(packed) == -(-count // 8)
    assert np.array_equal(unpack_hits(packed, count), right)
