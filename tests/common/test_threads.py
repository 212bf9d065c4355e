"""Work on threads keeps its order and leaves torch's own settings alone."""

import os
import threading

import pytest
import torch

from predbn.common import each_on_one_core, map_ahead, map_threads


@pytest.fixture(autouse=True)
def _two_threads(_deterministic):
    torch.set_num_threads(2)


def test_map_threads_keeps_the_order_and_torchs_setting() -> None:
    before = torch.get_num_threads()
    results = map_threads(lambda i: (i, torch.get_num_threads(), threading.get_ident()), range(20))
    assert [i for i, _, _ in results] == list(range(20))
    assert {threads for _, threads, _ in results} == {1}
    assert threading.get_ident() not in {ident for _, _, ident in results}
    assert torch.get_num_threads() == before
    in_new_thread: list[int] = []
    thread = threading.Thread(target=lambda: in_new_thread.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert in_new_thread == [before]


def test_map_threads_is_serial_inside_itself() -> None:
    def outer(_: int) -> set[int]:
        return set(map_threads(lambda _: threading.get_ident(), range(4))) | {threading.get_ident()}

    assert all(len(idents) == 1 for idents in map_threads(outer, range(4)))


def test_map_threads_passes_errors_on() -> None:
    with pytest.raises(ZeroDivisionError):
        map_threads(lambda i: 1 / i, [1, 0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_map_threads_works_after_a_fork() -> None:
    assert map_threads(abs, [-1, -2]) == [1, 2]
    child = os.fork()
    if child == 0:
        os._exit(0 if map_threads(abs, [-3, -4]) == [3, 4] else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_map_threads_uses_at_most_max_threads(monkeypatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert len(set(map_threads(lambda _: threading.get_ident(), range(20), max_threads=1))) == 1


@pytest.mark.parametrize("count", [0, 1, 5])
def test_each_call_has_one_core_and_the_setting_stays(count) -> None:
    before = torch.get_num_threads()
    results = each_on_one_core(lambda k: (k, torch.get_num_threads()), range(count))
    assert results == [(k, 1) for k in range(count)]
    assert torch.get_num_threads() == before


def test_map_ahead_keeps_the_order() -> None:
    assert list(map_ahead(lambda x: x * x, range(7))) == [x * x for x in range(7)]
    assert list(map_ahead(str, [])) == []


def test_map_ahead_computes_the_next_result_while_the_last_is_used() -> None:
    computed = [threading.Event() for _ in range(4)]
    results = map_ahead(lambda k: computed[k].set(), range(4))
    next(results)
    assert computed[1].wait(10)
    assert not computed[2].wait(0.05)
    next(results)
    assert computed[2].wait(10)


def test_map_ahead_raises_an_error_when_its_result_is_due_and_can_be_closed_early() -> None:
    results = map_ahead(lambda x: 1 // x, [1, 0, 1])
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)
    results = map_ahead(str, range(100))
    next(results)
    results.close()
    assert [thread for thread in threading.enumerate() if thread.name.startswith("predbn-ahead")] == []
