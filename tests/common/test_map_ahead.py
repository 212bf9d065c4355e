from __future__ import annotations

import threading

import pytest

from predbn.common.threads import map_ahead


def test_results_come_in_order():
    assert list(map_ahead(lambda x: x * x, range(7))) == [x * x for x in range(7)]
    assert list(map_ahead(str, [])) == []


def test_the_next_one_is_made_while_the_last_is_used():
    made = [threading.Event() for _ in range(4)]
    results = map_ahead(lambda k: made[k].set(), range(4))
    next(results)
    assert made[1].wait(10)
    assert not made[2].wait(0.05)
    next(results)
    assert made[2].wait(10)


def test_an_error_comes_in_its_place_and_an_early_end_is_one():
    results = map_ahead(lambda x: 1 // x, [1, 0, 1])
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)
    results = map_ahead(str, range(100))
    next(results)
    results.close()
    assert [thread for thread in threading.enumerate() if thread.name.startswith("predbn-ahead")] == []
