from __future__ import annotations

import copy

import torch
from torch import nn

from predbn.training.batch_count import share_batch_count


def test_a_network_trains_and_predicts_as_before():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, momentum=0.01), nn.Flatten(), nn.BatchNorm1d(16))
    plain(torch.randn(5, 3, 4, 4))  # counts need not start at 0
    shared = copy.deepcopy(plain)
    counts = share_batch_count(shared)
    for images in torch.randn(3, 5, 3, 4, 4):
        assert torch.equal(plain(images), shared(images))
        counts.add_(1)
    first, second = plain.state_dict(), shared.state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert torch.equal(plain.eval()(images), shared.eval()(images))
    shared.load_state_dict({name: torch.zeros_like(tensor) for name, tensor in first.items()})
    assert counts.tolist() == [0, 0]


def test_a_network_without_batch_norm():
    assert share_batch_count(nn.Linear(2, 2)).numel() == 0
