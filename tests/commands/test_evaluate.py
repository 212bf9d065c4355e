"""`predbn evaluate` on the command line."""

import json
import re
import sys
from itertools import product

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import predbn
from predbn import cli
from predbn.data import sample
from predbn.evaluation import Results, read_plan

runner = CliRunner()

OWN = """
import torch
from torch import nn

def build_model():
    torch.manual_seed(0)  # weights that are the same each time pass for trained ones
    return nn.Sequential(
        nn.Conv2d(3, 4, 5, stride=4), nn.BatchNorm2d(4), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2),
    )
"""
PREPARED = "--mean 0.485,0.456,0.406 --std 0.229,0.224,0.225 --size 32"
MODEL = f"--model theirs:build_model --weights w.pt --device cpu {PREPARED}"
SMALL = f"{MODEL} --shift clean --shift fog --severity 5 --batch-size 8"


def evaluate(line: str):
    return runner.invoke(cli.app, ["evaluate", *line.split()])


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Someone's project: a module, its weights, a folder of pictures by class."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "theirs.py").write_text(OWN)
    torch.manual_seed(0)
    scope: dict = {}
    exec(OWN, scope)
    torch.save(scope["build_model"]().state_dict(), tmp_path / "w.pt")
    images = sample("test")
    for position in range(20):
        folder = tmp_path / "pictures" / ("cat" if position % 2 else "dog")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images.images[position].permute(1, 2, 0).numpy()).resize((40, 36)).save(
            folder / f"{position:02d}.png"
        )
    yield tmp_path
    sys.modules.pop("theirs", None)


def output_of(result):
    return " ".join((result.output + (result.stderr or "")).replace("│", " ").split())


def test_a_real_shift_is_answered_in_the_first_sentence_also_for_programs(own):
    shift = "--reference pictures --data pictures --batch-size 5 --strategy train,prior(N=4)"
    result = evaluate(f"{MODEL} {shift} --json")
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.output)["comparisons"]
    assert found["recommended"] == "train"
    # The network has random weights.
    assert found["sentences"][0].startswith("Do not use these results: accuracy on the reference is 50.0 %")
    assert found["sentences"][1].startswith("Leave the model alone: ")
    assert [each["strategy"] for each in found["strategies"]] == ["train", "prior(N=4)"]
    shown = runner.invoke(cli.app, ["results", "show", "predbn-run"])
    assert found["sentences"][0][:40] in output_of(shown)
    assert f"<h1>{found['sentences'][0]}</h1>" in (own / "predbn-run" / "report.html").read_text()
    exported = runner.invoke(cli.app, ["results", "export", "predbn-run", "again.html"])
    assert exported.exit_code == 0, exported.output
    assert (own / "again.html").read_bytes() == (own / "predbn-run" / "report.html").read_bytes()


def test_a_folder_with_some_of_the_classes_is_mapped_by_a_file(own):
    (own / "classes.txt").write_text("dog\ncat\n")
    (own / "one").mkdir()
    (own / "pictures" / "dog").rename(own / "one" / "dog")
    result = evaluate(f"{SMALL} --data one")
    assert "has 2 classes, but the data has 1" in str(result.exception)
    result = evaluate(f"{SMALL} --data one --class-map classes.txt --no-report")
    assert result.exit_code == 0, result.output
    assert Results.load("predbn-run").card["data"]["classes"] == 2


def test_a_strategy_of_a_module_of_ones_own_is_known(own):
    code = "from dataclasses import dataclass\nimport predbn\n@dataclass(frozen=True)\n"
    code += "class Plain(predbn.Batch):\n    name = 'plain'\n"
    (own / "my_strategies.py").write_text(code)
    result = evaluate(f"{SMALL} --data pictures --strategy train,plain --import my_strategies --no-report")
    assert result.exit_code == 0, result.output
    assert set(Results.load("predbn-run").frame["strategy"]) == {"train", "plain"}
    predbn.Strategy._by_name.pop("plain")
    sys.modules.pop("my_strategies")


def test_someone_with_their_own_model_gets_there(own):
    """The run ends in tables, a recommendation and a report, and its plan can be run again."""
    result = evaluate(f"{SMALL} --data pictures")
    assert result.exit_code == 0, result.output
    assert "  batch" in result.output
    assert re.search(r"(Use batch|Leave the model alone): .* The intervals are over images", output_of(result))
    assert "Recommendation</h2>" in (own / "predbn-run" / "report.html").read_text()
    results = Results.load("predbn-run")
    assert set(results.frame["model"]) == {"theirs:build_model#w.pt"}
    card = results.card["models"]["theirs:build_model#w.pt"]
    assert card["preprocessing"]["mean"] == pytest.approx([123.675, 116.28, 103.53])
    assert results.card["data"]["images"] == 20
    assert read_plan("predbn-run/plan.toml").models[0].weights == "w.pt"
    again = evaluate("--plan predbn-run/plan.toml --no-report --device cpu")
    assert again.exit_code == 0, again.output


def test_streams_whose_shift_and_classes_change(own):
    """All kinds of streams in one run, with one row each, and a report; the plan file names them in the same way."""
    streams = {
        "--shift": ["mixed-2", "mixed-extra-levels", "in_turn-3", "markov-2-0.5"],
        "--order": ["dirichlet:0.1", "markov:0.9"],
    }
    line = f"{MODEL} --data pictures --severity 2 --strategy batch --strategy ema --batch-size 8 --images 12"
    line += "".join(f" {option} {name}" for option, names in streams.items() for name in names)
    result = evaluate(line)
    assert result.exit_code == 0, result.output
    rows = Results.load("predbn-run").filter(strategy="batch", metric="accuracy").frame
    assert len(rows) == 8
    assert set(zip(rows["corruption"], rows["order"], strict=True)) == set(product(*streams.values()))
    assert set(rows["severity"]) == {2}
    report = (own / "predbn-run" / "report.html").read_text()
    assert all(name in report for name in ("mixed-extra-levels", "in_turn-3", "markov-2-0.5", "markov:0.9"))
    assert report.count('<img src="data:image/png') == 4
    plan = read_plan("predbn-run/plan.toml")
    assert [*map(list, (plan.shifts, plan.orders))] == [*streams.values()]


def test_arrays_json_and_quiet(own):
    (own / "arrays").mkdir()
    np.save(own / "arrays" / "images.npy", np.random.default_rng(0).integers(0, 256, (24, 32, 32, 3), np.uint8))
    np.save(own / "arrays" / "labels.npy", np.arange(24) % 2)
    result = evaluate(f"{SMALL} --data arrays --no-report --json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.output)["by_severity"]
    assert {row["metric"] for row in rows} >= {"accuracy", "brier", "ece", "nll"}
    quiet = evaluate(f"{SMALL} --data arrays --no-report --quiet")
    assert (quiet.exit_code, quiet.output) == (0, "")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (f"{PREPARED} --data imagenet --root pictures", "has no class"),
        (f"{PREPARED} --weights no.pt", "no.pt does not exist"),
        (f"{PREPARED} --data nowhere", "There is no data 'nowhere'"),
        (f"{PREPARED} --data sample", "has 2 classes, but the data has 10"),
        ("--data pictures", "has no preprocessing"),
        (f"{PREPARED} --data pictures --shift in_turn-20", "'in_turn-20' has more corruptions than the 19"),
        (f"{PREPARED} --data pictures --precision fp16", "needs a GPU"),
        (f"{PREPARED} --data pictures --method temperature", "names no validation data"),
    ],
)
def test_what_cannot_be_evaluated_is_one_sentence(own, line, sentence):
    result = evaluate(f"--model theirs:build_model --device cpu {line}")
    assert isinstance(result.exception, ValueError), result.exception
    assert sentence in str(result.exception)
    assert "\n" not in str(result.exception)
