"""A few steps on a tiny folder: alone, interrupted, and in two processes."""

from __future__ import annotations

import csv
import os
import socket
from dataclasses import replace

import pytest
import torch
import torch.multiprocessing as mp
from torch import nn

from predbn.models import ModelError, load
from predbn.models import read_weights as read
from predbn.training import TrainingError
from predbn.training.imagenet import open_data, train, trainee
from predbn.training.imagenet.processes import Processes, joined
from predbn.training.imagenet.train import place_of

from .tiny import RECIPE, tiny_by_image, tiny_folder, tiny_resnet

ALONE = Processes(0, 1, torch.device("cpu"))


class Stopped(Exception):
    pass


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("PREDBN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(trainee, "resnet50", tiny_resnet)
    return open_data(tiny_folder(tmp_path / "data"), RECIPE.preprocessing, subset=True)


def weights(out, seed=0):
    return read(place_of(out, seed).with_suffix(".safetensors"))[0]


def rows(out):
    with place_of(out, 0).with_suffix(".csv").open() as file:
        return [{name: value for name, value in row.items() if name != "seconds"} for row in csv.DictReader(file)]


def test_a_run_leaves_weights_card_and_log(data, tmp_path):
    seen = []
    card = train(RECIPE, data, tmp_path / "out", ALONE, on_step=lambda done: seen.append(done[:3]))
    assert seen == [(0, 1, 3), (0, 2, 3), (1, 0, 3), (1, 1, 3), (1, 2, 3), (2, 0, 3), (2, 1, 3), (2, 2, 3), (3, 0, 3)]
    assert card["trained_on"] == "14 images of 2 classes"
    assert card["validation"]["images"] == 6
    assert card["recipe"]["batch_size"] == 4
    found = sorted(path.name for path in place_of(tmp_path / "out", 0).parent.iterdir())
    assert found == ["0.csv", "0.json", "0.safetensors"]
    assert [row["epoch"] for row in rows(tmp_path / "out")] == ["1", "2", "3"]
    with pytest.raises(TrainingError, match="give --resume"):
        train(RECIPE, data, tmp_path / "out", ALONE)
    assert train(RECIPE, data, tmp_path / "out", ALONE, resume=True) == card


@pytest.mark.parametrize("stop", [2, 4, 6])
def test_an_interrupted_run_goes_on_bit_for_bit(data, tmp_path, stop):
    train(RECIPE, data, tmp_path / "whole", ALONE)
    taken = []

    def on_step(done):
        taken.append(done)
        if len(taken) == stop:
            raise Stopped

    with pytest.raises(Stopped):
        train(RECIPE, data, tmp_path / "cut", ALONE, checkpoint_every=1, on_step=on_step)
    with pytest.raises(TrainingError, match="give --resume"):
        train(RECIPE, data, tmp_path / "cut", ALONE)
    with pytest.raises(TrainingError, match=r"is of a run with learning_rate 0\.05, not 0\.1"):
        train(replace(RECIPE, learning_rate=0.1), data, tmp_path / "cut", ALONE, resume=True)
    train(RECIPE, data, tmp_path / "cut", ALONE, resume=True, checkpoint_every=1, on_step=taken.append)
    assert len(taken) == 9
    whole, cut = weights(tmp_path / "whole"), weights(tmp_path / "cut")
    assert all(torch.equal(whole[name], cut[name]) for name in whole)
    assert rows(tmp_path / "whole") == rows(tmp_path / "cut")


def test_the_steps_are_nesterovs(data, tmp_path, monkeypatch):
    """One parameter against the equations: v ← m v + g, w ← w − rate (g + m v), with decay in g for matrices."""

    class Slope(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.full((2, 1), 0.5))

        def forward(self, x):
            return x.mean((1, 2, 3)).unsqueeze(1) * 0 + self.weight.T

    monkeypatch.setattr(trainee, "resnet50", lambda eps, classes: Slope())
    recipe = replace(RECIPE, weight_decay=0.1)
    runner = trainee.ImageNetTrainee(recipe, 0, 2, ALONE)
    w, v = torch.full((2,), 0.5), torch.zeros(2)
    images, labels = torch.zeros(4, 3, 16, 16, dtype=torch.uint8), torch.tensor([0, 0, 0, 1])
    for step in range(3):
        runner.take_step(images, labels, 3)
        gradient = w.softmax(0) - torch.tensor([0.75, 0.25]) + 0.1 * w
        v = 0.9 * v + gradient
        w = w - recipe.rate(step / 3) * (gradient + 0.9 * v)
    torch.testing.assert_close(runner.network.weight.detach()[:, 0], w)


def test_a_loss_that_is_no_number_ends_the_run(data, tmp_path):
    recipe = replace(RECIPE, learning_rate=1e30, warm_up=0)
    with pytest.raises(TrainingError, match="The loss stopped being a number in epoch 1: lower the learning rate"):
        train(recipe, data, tmp_path / "out", ALONE)


def one_process(rank, root, out, port):
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    trainee.resnet50 = tiny_by_image
    with joined("cpu") as processes:
        data = open_data(root, RECIPE.preprocessing, subset=True)
        train(RECIPE, data, out, processes)
        taken = []

        def on_step(done):
            taken.append(done)
            if len(taken) == 4:
                raise Stopped

        try:
            train(RECIPE, data, out, processes, seed=1, checkpoint_every=2, on_step=on_step)
        except Stopped:
            train(RECIPE, data, out, processes, seed=1, resume=True)


def test_two_processes_take_the_steps_of_one(data, tmp_path, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(one_process, args=(data.train.root.parent, tmp_path / "two", port), nprocs=2)
    monkeypatch.setattr(trainee, "resnet50", tiny_by_image)
    for seed in (0, 1):
        train(RECIPE, data, tmp_path / "one", ALONE, seed=seed)
        one, two = weights(tmp_path / "one", seed), weights(tmp_path / "two", seed)
        torch.manual_seed(seed)
        begun = tiny_by_image(eps=RECIPE.eps, classes=2).state_dict()
        assert (one["fc.weight"] - begun["fc.weight"]).abs().max() > 0.01
        for name in one:
            torch.testing.assert_close(two[name].float(), one[name].float(), rtol=1e-3, atol=1e-3)


def test_the_architecture_that_loads_the_weights(data, tmp_path):
    """Those of the tiny network do not fit it, which is how one sees that it was found."""
    train(RECIPE, data, tmp_path / "out", ALONE)
    with pytest.raises(ModelError, match="does not fit the network"):
        load(f"file:{place_of(tmp_path / 'out', 0)}.safetensors#resnet50-imagenet/batch")
