"""The looks of series."""

from __future__ import annotations

import pandas as pd

from predbn.report.frames import checked
from predbn.report.looks import GREY, looks


def test_a_hue_is_a_method_where_each_has_one_strategy_to_compare(frame):
    drawn = looks(checked(frame))
    assert [look.baseline for look in drawn] == [True, False] * 3
    assert len({look.colour for look in drawn}) == 3
    assert all(train.colour == batch.colour for train, batch in zip(drawn[::2], drawn[1::2], strict=True))
    assert len({look.area for look in drawn}) == 6


def test_a_single_baseline_is_grey_beside_coloured_strategies(frame):
    one = frame[frame["method"] == "vanilla"]
    more = pd.concat([one, one[one["strategy"] == "batch"].assign(strategy="prior(N=16)")])
    drawn = looks(checked(more))
    assert [look.series for look in drawn] == ["vanilla · train", "vanilla · batch", "vanilla · prior(N=16)"]
    assert drawn[0].colour == GREY
    assert len({look.colour for look in drawn}) == 3


def test_any_number_of_series_is_told_apart(frame):
    one = frame[(frame["method"] == "vanilla") & (frame["strategy"] == "batch")]
    many = pd.concat([one.assign(strategy=f"prior(N={n})") for n in range(20)])
    assert len({look.colour for look in looks(checked(many))}) == 20
