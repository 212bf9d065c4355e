"""The bookkeeping of a captured step, with a stand-in for CUDA that runs the step where a GPU would replay it."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch import nn

from predbn.training.cuda_graph import StepGraph


class Model:
    """A linear layer with Adam, trained on the row of a table that a cursor points at."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=0.1)
        self.table, self.cursor = torch.randn(5, 4, 3), torch.zeros(1, dtype=torch.int64)

    def step(self) -> None:
        loss = self.network(self.table.index_select(0, self.cursor)[0]).square().sum()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.cursor.add_(1)

    def values(self) -> list[torch.Tensor]:
        moments = [t for state in self.optimiser.state.values() for t in state.values()]
        return [*self.network.state_dict().values(), *moments, self.cursor]


@pytest.fixture
def calls(monkeypatch):
    """The steps that the stand-in has run, by what they were for."""
    calls = []

    class Graph:
        def replay(self):
            calls.append("replay")
            self.step()

    @contextmanager
    def capture(graph, stream):
        calls.append("capture")
        yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: "stream")
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    Graph.step = lambda self: None
    return calls, Graph


@pytest.mark.parametrize("steps_before", [0, 2])
def test_only_replays_train(calls, steps_before):
    plain, graphed = Model(), Model()
    for model in (plain, graphed):
        for _ in range(steps_before):
            model.step()
    step_graph = StepGraph(graphed.network, graphed.optimiser, [graphed.cursor], torch.device("cuda"))
    log, graph = calls
    graph.step = lambda self: graphed.step()
    for _ in range(3):
        step_graph.run(graphed.step)
        plain.step()
    assert log == ["capture", "replay", "replay", "replay"]
    assert all(map(torch.equal, plain.values(), graphed.values()))


def test_on_a_cpu_the_step_is_called():
    model = Model()
    StepGraph(model.network, model.optimiser, [model.cursor], torch.device("cpu")).run(model.step)
    assert model.cursor.item() == 1
