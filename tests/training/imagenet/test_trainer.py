"""A few steps on a tiny folder: alone, interrupted, and in two processes."""

import csv
import os
import socket
from multiprocessing import get_context
from unittest import mock

import pytest
import torch

from predbn.models import ModelError, load, read_weights
from predbn.training import ProcessGroup, TrainingError, join_process_group, open_imagenet, train_imagenet
from predbn.training.imagenet import trainer

from ..tiny import Interrupted, interrupt_after
from .tiny import RECIPE, tiny_by_image, tiny_folder, tiny_resnet

CPU = torch.device("cpu")
ALONE = ProcessGroup(CPU)


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREDBN_CACHE", str(tmp_path_factory.mktemp("cache")))
        return open_imagenet(tiny_folder(tmp_path_factory.mktemp("data")), RECIPE.preprocessing, subset=True)


@pytest.fixture
def data(opened, monkeypatch):
    monkeypatch.setattr(trainer, "resnet50", tiny_resnet)
    return opened


def file_of(out, suffix):
    return out / "resnet50-imagenet" / "batch" / f"0.{suffix}"


def weights(out):
    return read_weights(file_of(out, "safetensors"))[0]


def rows(out):
    with file_of(out, "csv").open() as file:
        return [{name: value for name, value in row.items() if name != "seconds"} for row in csv.DictReader(file)]


def train(data, out, group=ALONE, **options):
    return train_imagenet(RECIPE, 0, data, out, group, **options)


def test_a_run_writes_weights_card_and_log_and_resumes_bit_for_bit(data, tmp_path):
    out, reports = tmp_path / "out", []
    card = train(data, out, progress=lambda *report: reports.append(report[:2]))
    assert reports == [(step, 9) for step in range(1, 10)]
    assert card["trained_on"] == "14 images of 2 classes"
    assert card["validation"]["images"] == 6
    assert card["recipe"]["batch_size"] == 4
    names = sorted(path.name for path in file_of(out, "csv").parent.iterdir())
    assert names == [".0.lock", "0.csv", "0.json", "0.safetensors"]
    assert [row["epoch"] for row in rows(out)] == ["1", "2", "3"]
    assert float(rows(out)[-1]["learning_rate"]) == pytest.approx(RECIPE.learning_rate_at(2 + 2 / 3), rel=1e-5)
    with pytest.raises(TrainingError, match="use --resume"):
        train(data, out)
    assert train(data, out, resume=True) == card
    # the weights of the tiny network do not fit the architecture, which shows that it is known
    with pytest.raises(ModelError, match="does not fit the network"):
        load(f"file:{file_of(out, 'safetensors')}#resnet50-imagenet/batch")
    for stop in (2, 6):  # in the middle and at the end of an epoch
        cut = tmp_path / f"cut-{stop}"
        with pytest.raises(Interrupted):
            train(data, cut, checkpoint_every=1, progress=interrupt_after(stop))
        steps = []
        train(data, cut, resume=True, checkpoint_every=1, progress=lambda done, *_, steps=steps: steps.append(done))
        assert steps in (list(range(stop, 10)), list(range(stop + 1, 10)))
        assert all(torch.equal(tensor, weights(cut)[name]) for name, tensor in weights(out).items())
        assert rows(cut) == rows(out)


def run_process(rank, root, out, port):
    torch.set_num_threads(1)
    variables = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    trainer.resnet50 = tiny_by_image
    with mock.patch.dict(os.environ, variables), join_process_group(CPU) as group:
        data = open_imagenet(root, RECIPE.preprocessing, subset=True)
        try:
            train(data, out, group=group, checkpoint_every=2, progress=interrupt_after(4))
        except Interrupted:
            train(data, out, group=group, resume=True)


def test_two_processes_take_the_steps_of_one_also_after_an_interruption(data, tmp_path, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("PREDBN_CACHE", str(tmp_path / "cache"))
    arguments = data.train.root.parent, tmp_path / "two", port
    other = get_context("spawn").Process(target=run_process, args=(1, *arguments), daemon=True)
    other.start()
    run_process(0, *arguments)  # this process is the first of the two
    other.join()
    assert other.exitcode == 0
    train(data, tmp_path / "one")
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    torch.manual_seed(0)
    initial = tiny_by_image(eps=RECIPE.eps, classes=2).state_dict()
    assert (one["fc.weight"] - initial["fc.weight"]).abs().max() > 0.01
    for name in one:
        torch.testing.assert_close(two[name].float(), one[name].float(), rtol=1e-3, atol=1e-3)
