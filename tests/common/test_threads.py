"""Work shared out among threads leaves torch's own settings alone."""

from __future__ import annotations

import os
import threading

import pytest
import torch

from predbn.common.threads import map_threads, threads_for


def test_keeps_the_order_and_torchs_setting() -> None:
    torch.set_num_threads(2)
    before = torch.get_num_threads()
    found = map_threads(lambda i: (i, torch.get_num_threads(), threading.get_ident()), range(20))
    assert [i for i, _, _ in found] == list(range(20))
    assert {threads for _, threads, _ in found} == {1}
    assert threading.get_ident() not in {ident for _, _, ident in found}
    assert torch.get_num_threads() == before
    fresh: list[int] = []
    thread = threading.Thread(target=lambda: fresh.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert fresh == [before]


def test_is_serial_inside_itself() -> None:
    def outer(_: int) -> set[int]:
        return set(map_threads(lambda _: threading.get_ident(), range(4))) | {threading.get_ident()}

    assert all(len(idents) == 1 for idents in map_threads(outer, range(4)))


def test_passes_errors_on() -> None:
    with pytest.raises(ZeroDivisionError):
        map_threads(lambda i: 1 / i, [1, 0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_works_after_a_fork() -> None:
    assert map_threads(abs, [-1, -2]) == [1, 2]
    child = os.fork()
    if child == 0:
        os._exit(0 if map_threads(abs, [-3, -4]) == [3, 4] else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_no_more_threads_than_asked_for(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert len(set(map_threads(lambda _: threading.get_ident(), range(20), most=1))) == 1


def test_small_pictures_pay_for_one_thread_and_large_ones_for_many():
    assert threads_for(32, 32) == threads_for(64, 64) == 1
    assert threads_for(224, 224) == 12
