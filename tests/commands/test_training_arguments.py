from __future__ import annotations

import pytest
import torch
import typer

from predbn.commands.training_arguments import device_of, ranges_of, seeds_of, sets_of


@pytest.mark.parametrize(
    ("text", "wanted"), [("3", [3]), ("0-9", list(range(10))), ("0,2,5-7", [0, 2, 5, 6, 7]), ("2,1,1-2", [1, 2])]
)
def test_seeds(text, wanted):
    assert seeds_of(text) == wanted


@pytest.mark.parametrize("text", ["", "a", "9-0", "-1", "1,,2", "1.5", "0-"])
def test_no_seeds(text):
    if text == "0-":
        assert seeds_of(text) == [0]
        return
    with pytest.raises(typer.BadParameter, match="is no list of seeds: write 0-9 or 0,3,7"):
        seeds_of(text)


def test_ranges():
    assert ranges_of([]) == {}
    found = ranges_of(["learning_rate=1e-3,1", "weight_decay=2,2"])
    assert found == {"learning_rate": (1e-3, 1.0), "weight_decay": (2.0, 2.0)}


@pytest.mark.parametrize("text", ["", "rate=1,2", "adam_eps=1", "adam_eps=2,1", "adam_eps=0,1", "adam_eps=1,inf"])
def test_no_range(text):
    with pytest.raises(typer.BadParameter, match="is no range: write NAME=LOW,HIGH with learning_rate"):
        ranges_of([text])


def test_devices(monkeypatch):
    assert device_of("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device_of("auto") == device_of("cuda") == torch.device("cuda")
    assert device_of("cuda:1") == torch.device("cuda:1")
    with pytest.raises(typer.BadParameter, match="there is no cuda:2"):
        device_of("cuda:2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_of("auto") == torch.device("cpu")


@pytest.mark.parametrize("name", ["gpu", "meta", "cpu:1", "cuda:x", ""])
def test_no_device(name):
    with pytest.raises(typer.BadParameter, match="is not cpu, cuda, cuda:NUMBER or auto"):
        device_of(name)


def test_the_sample_is_split_into_what_is_trained_on_and_what_is_not():
    sets = sets_of(None, True, torch.device("cpu"))
    assert (len(sets.train), len(sets.validation), len(sets.test)) == (800, 200, 2000)
    assert not set(sets.train.index.tolist()) & set(sets.validation.index.tolist())
