import pytest

from predbn.data import DataError, class_mask, wnids


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
