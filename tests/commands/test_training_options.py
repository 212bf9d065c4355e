import pytest
import torch
import typer

from predbn.commands.training_options import open_cifar10, parse_seeds
from predbn.commands.tune_cifar10 import parse_ranges


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3", [3]), ("0-9", list(range(10))), ("0,2,5-7", [0, 2, 5, 6, 7]), ("2,1,1-2", [1, 2]), ("0-", [0])],
)
def test_seeds(text, expected):
    assert parse_seeds(text) == expected


@pytest.mark.parametrize("text", ["", "a", "9-0", "-1", "1,,2", "1.5"])
def test_no_seeds(text):
    with pytest.raises(typer.BadParameter, match="is not a list of seeds: write 0-9 or 0,3,7"):
        parse_seeds(text)


@pytest.mark.parametrize("text", ["rate=1,2", "adam_eps=1", "adam_eps=2,1", "adam_eps=0,1", "adam_eps=1,inf"])
def test_no_range(text):
    with pytest.raises(typer.BadParameter, match="is not a range: write NAME=LOW,HIGH with one of learning_rate"):
        parse_ranges([text])


def test_ranges():
    assert parse_ranges([]) == {}
    ranges = parse_ranges(["learning_rate=1e-3,1", "weight_decay=2,2"])
    assert ranges == {"learning_rate": (1e-3, 1.0), "weight_decay": (2.0, 2.0)}


def test_the_sample_is_split():
    data = open_cifar10(None, True, torch.device("cpu"))
    assert (len(data.train), len(data.validation), len(data.test)) == (800, 200, 2000)
    assert not set(data.train.index.tolist()) & set(data.validation.index.tolist())
