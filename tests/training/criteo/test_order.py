"""An epoch visits every row once, in another order each time, and close rows together."""

from __future__ import annotations

import pytest
import torch

from predbn.training.criteo import order
from predbn.training.criteo.order import epoch_batches


@pytest.mark.parametrize("rows", [10, 64, 1000])
def test_every_row_once_but_for_the_rest(monkeypatch, rows):
    monkeypatch.setattr(order, "WINDOW", 64)
    batches = list(epoch_batches(rows, 10, seed=0, epoch=0))
    assert [len(batch) for batch in batches] == [10] * (rows // 10)
    visited = torch.cat(batches)
    assert len(visited.unique()) == rows // 10 * 10
    assert int(visited.max()) < rows
    again = torch.cat(list(epoch_batches(rows, 10, seed=0, epoch=0)))
    assert torch.equal(visited, again)
    for seed, epoch in ((1, 0), (0, 1)):
        assert not torch.equal(visited, torch.cat(list(epoch_batches(rows, 10, seed=seed, epoch=epoch))))


def test_few_windows_at_a_time(monkeypatch):
    monkeypatch.setattr(order, "WINDOW", 100)
    for batch in epoch_batches(1000, 50, seed=0, epoch=0):
        assert len((batch // 100).unique()) <= 2
