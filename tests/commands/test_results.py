"""`predbn results` on the command line."""

import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from predbn import cli
from predbn.data import sample
from predbn.evaluation import Plan, evaluate
from tests.evaluation import tiny

runner = CliRunner()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    models = {f"t/{k}": tiny.classifier(k) for k in range(2)}
    plan = Plan(models=list(models), shifts=("clean", "fog", "snow"), severities=(1, 5), batch_sizes=20)
    evaluate(plan, out, data=sample("test").take(40), models=models)
    return out


def invoke(*arguments):
    return runner.invoke(cli.app, ["results", *map(str, arguments)], env={"COLUMNS": "120"})


def test_show(run):
    result = invoke("show", run, "--metric", "brier", "--where", "model=t/*")
    assert result.exit_code == 0, result.output
    assert "Brier score" in result.output
    assert "accuracy" not in result.output.split("•")[0]
    rows = json.loads(invoke("show", run, "--json").output)
    assert {row["severity"] for row in rows} == {0, 1, 5}


def test_compare(run):
    result = invoke("compare", run, "--first", "strategy=batch", "--second", "strategy=train")
    assert result.exit_code == 0, result.output
    assert "95 % interval" in result.output
    rows = json.loads(invoke("compare", run, run, "--json").output)
    assert all(row["difference"] == 0 for row in rows)


@pytest.mark.parametrize(("suffix", "read"), [(".csv", pd.read_csv), (".json", pd.read_json)])
def test_export(run, tmp_path, suffix, read):
    target = tmp_path / f"out{suffix}"
    assert invoke("export", run, target, "--where", "strategy=batch").exit_code == 0
    frame = read(target)
    assert set(frame["strategy"]) == {"batch"}
    assert len(frame) == 2 * 5 * 6


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["show", "{run}", "--where", "strategy=frozen"], "no result has strategy frozen: there are"),
        (["show", "{run}", "--where", "strategy"], "is not NAME=VALUE"),
        (["show", "{run}", "--where", "severity=high"], "is not an integer"),
        (["show", "{run}", "--metric", "auc"], "no result has metric auc"),
        (["compare", "{run}"], "to compare parts of one run"),
        (["export", "{run}", "out.xls"], "must end with"),
    ],
)
def test_wrong_arguments_are_usage_errors(run, arguments, sentence):
    result = invoke(*(argument.format(run=run) for argument in arguments))
    assert result.exit_code == 2
    assert sentence in " ".join(result.output.replace("│", " ").split())


def test_a_folder_without_a_run_is_a_failure(tmp_path):
    result = invoke("show", tmp_path)
    assert "has no run in it" in str(result.exception)
