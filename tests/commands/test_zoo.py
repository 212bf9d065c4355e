"""`predbn zoo` on the command line."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from predbn.cli import app
from predbn.models import zoo


def output_of(*arguments):
    result = CliRunner().invoke(app, ["zoo", *arguments])
    assert result.exit_code == 0
    return result.output


def test_every_kind_has_a_row_with_its_mean():
    accuracy = np.mean([zoo.card(f"resnet20-cifar10/batch/{seed}")["test"]["accuracy"] for seed in range(10)])
    (row,) = [line for line in output_of().splitlines() if "resnet20-cifar10/batch/*" in line]
    assert row.split()[1:3] == ["10", f"{100 * accuracy:.2f}"]
    assert output_of().count("…") == 1, "nothing is cut off but the heading has its dots"


@pytest.mark.parametrize("name", ["resnet20-cifar10/group/1", "zoo:resnet20-cifar10/group/1"])
def test_a_card(name):
    assert json.loads(output_of(name)) == zoo.card("resnet20-cifar10/group/1")


def test_json_has_all_cards():
    assert list(json.loads(output_of("--json"))) == zoo.names()
