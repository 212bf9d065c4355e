"""The bookkeeping of a captured step, with a recorder that runs the step where a GPU would replay it."""

from __future__ import annotations

from typing import ClassVar

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


class Recorder:
    """Has the method of `CudaGraphRecorder`, and a log of what it was asked to do."""

    log: ClassVar[list[str]] = []

    def __init__(self, stream: str) -> None:
        self.log.append(f"record on {stream}")

    def record(self, run, warm_up):
        for call in (warm_up, warm_up, run):
            call()

        def replay() -> None:
            self.log.append("replay")
            run()

        return replay, None


@pytest.mark.parametrize("steps_before", [0, 2])
def test_only_replays_train(monkeypatch, steps_before):
    monkeypatch.setattr("predbn.training.cuda_graph.CudaGraphRecorder", Recorder)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: "a new stream")
    monkeypatch.setattr(Recorder, "log", [])
    plain, graphed = Model(), Model()
    for model in (plain, graphed):
        for _ in range(steps_before):
            model.step()
    step_graph = StepGraph(graphed.network, graphed.optimiser, [graphed.cursor], torch.device("cuda"))
    for _ in range(3):
        step_graph.run(graphed.step)
        plain.step()
    assert Recorder.log == ["record on a new stream", "replay", "replay", "replay"]
    assert all(map(torch.equal, plain.values(), graphed.values()))


def test_on_a_cpu_the_step_is_called():
    model = Model()
    StepGraph(model.network, model.optimiser, [model.cursor], torch.device("cpu")).run(model.step)
    assert model.cursor.item() == 1
