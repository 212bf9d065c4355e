from __future__ import annotations

from predbn.data import wnids
from predbn.data.wnids import is_wnid


def test_a_thousand_in_sorted_order():
    assert len(set(wnids())) == 1000
    assert list(wnids()) == sorted(wnids())
    assert all(is_wnid(name) for name in wnids())
    assert not is_wnid("n1")


def test_some_that_everyone_knows():
    known = {0: "n01440764", 207: "n02099601", 281: "n02123045", 817: "n04285008", 999: "n15075141"}
    assert {number: wnids()[number] for number in known} == known
