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
    picked = logits[:, list(mask.positions)]
    assert torch.equal(picked, torch.stack([logits[:, k] for k in chosen], 1))
    probabilities = logits.softmax(1)[:, chosen]
    expected = probabilities / probabilities.sum(1, keepdim=True)
    torch.testing.assert_close(picked.softmax(1), expected)


def test_the_classes_are_sorted():
    assert len(set(wnids())) == 1000
    assert list(wnids()) == sorted(wnids())
    expected = {0: "n01440764", 207: "n02099601", 281: "n02123045", 817: "n04285008", 999: "n15075141"}
    assert {number: wnids()[number] for number in expected} == expected
    assert class_mask(wnids()).everything
    assert not class_mask(wnids()[::-1]).everything


def test_unknown_classes_are_errors():
    with pytest.raises(DataError, match=r"'cat' is not a class of ImageNet \(2 of 3 are not\)"):
        class_mask(["n01440764", "cat", "dog"])
