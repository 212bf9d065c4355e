from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from predbn.data import DataError, class_mask, wnids


@given(st.lists(st.integers(0, 999), unique=True, min_size=1, max_size=9))
def test_a_mask_picks_the_logits_of_its_classes(chosen):
    mask = class_mask([wnids()[k] for k in chosen])
    assert (len(mask), mask.total, mask.positions) == (len(chosen), 1000, tuple(chosen))
    logits = torch.randn(4, 1000)
    assert torch.equal(mask.restrict(logits), torch.stack([logits[:, k] for k in chosen], 1))
    labels = torch.arange(len(chosen))
    assert mask.among_all(labels).tolist() == chosen
    probabilities = logits.softmax(1)[:, chosen]
    wanted = probabilities / probabilities.sum(1, keepdim=True)
    torch.testing.assert_close(mask.restrict(logits).softmax(1), wanted)


def test_all_classes_are_nothing_to_leave_out():
    assert class_mask(wnids()).everything
    assert not class_mask(wnids()[:200]).everything
    assert not class_mask(wnids()[::-1]).everything


def test_what_does_not_fit_is_refused():
    with pytest.raises(DataError, match=r"'cat' is no class of ImageNet \(2 of 3 are none\)"):
        class_mask(["n01440764", "cat", "dog"])
    with pytest.raises(DataError, match="There are 10 logits, but the classes are 2 of 1000"):
        class_mask(wnids()[:2]).restrict(torch.zeros(3, 10))
