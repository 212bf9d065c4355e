"""The README runs, states what was measured, and can be read aloud in three minutes."""

import re
import shlex
import warnings
from pathlib import Path

import torch
import typer

import glance
from predbn import cli
from predbn.common import parse_toml
from predbn.evaluation import Results
from predbn.paper import Runs, verify
from predbn.recommendation import real_shift_sentences, real_shifts

from .test_guides import BLOCK

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text()
WORDS_PER_MINUTE = 150


def between(name: str) -> str:
    return " ".join(TEXT.split(f"<!-- {name} -->")[1].split(f"<!-- /{name} -->")[0].strip(" >\n").split())


def test_its_python_runs_without_a_warning_and_restores_the_model():
    (code,) = (block["code"] for block in BLOCK.finditer(TEXT) if block["language"] == "python")
    names = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exec(compile(code, "README.md", "exec"), names)
    assert names["probabilities"].shape == (100, 10)
    plain = names["load"]("zoo:resnet20-cifar10/batch/0")
    assert torch.equal(names["model"](names["x"]), plain(names["x"]))


def test_its_commands_and_their_options_exist():
    lines = [
        line
        for block in BLOCK.finditer(TEXT)
        if block["language"] == "sh"
        for line in block["code"].replace("\\\n", "").splitlines()
    ]
    commands = [shlex.split(line, comments=True) for line in lines if line.startswith("predbn ")]
    assert [command[1] for command in commands] == ["demo", "evaluate"]
    app = typer.main.get_command(cli.app)
    for _, name, *arguments in commands:
        command = app.commands[name]
        known = {option for parameter in command.get_params(typer.Context(command)) for option in parameter.opts}
        assert {argument for argument in arguments if argument.startswith("--")} <= known


def test_its_versions_and_extras_are_those_of_the_package():
    project = parse_toml((ROOT / "pyproject.toml").read_text())["project"]
    python, pytorch = re.search(r"Python (\S+) and PyTorch (\S+) or newer", TEXT).groups()
    assert project["requires-python"] == f">={python}"
    assert f"torch>={pytorch}" in project["dependencies"]
    assert set(re.findall(r'"\./predbn\[(\w+)\]"', TEXT)) <= set(project["optional-dependencies"])
    assert "Development Status :: 3 - Alpha" in project["classifiers"]


def test_its_figures_are_measured():
    (shift,) = real_shifts(Results.load(ROOT / "results" / "digits"))
    assert between("answer") == real_shift_sentences(shift)[0]
    (findings,) = verify(Runs(ROOT / "results" / "imagenet"), ["I1"]).values()
    measured = {each.what: each.interval.estimate for finding in findings for each in finding.measurements}
    after = measured["mCE of vanilla, prediction BN, %"]
    before = after + measured["mCE: gain of prediction BN (vanilla), points"]
    assert f"from an mCE of {before:.1f} to {after:.1f}" in TEXT
    holds, all_claims, fails = re.search(r"(\d+) of its (\d+) claims hold, (\d+) do not", TEXT).groups()
    count = f"paper's {all_claims} claims, {holds} hold, {fails} do not hold"
    assert count in (ROOT / "docs" / "replication.md").read_text()
    assert TEXT.split("<!-- table -->\n")[1].split("\n<!-- /table -->")[0] == glance.markdown()
    scores = glance.read_results(glance.RESULT)["accuracy"]
    alt = re.search(r'alt="([^"]*)"', TEXT)[1]
    for shift, where in (("clean", "clean"), ("fog", "in fog"), ("contrast", "with little contrast")):
        without, adapted = (round(100 * scores[shift][name]) for name in (glance.WITHOUT, glance.WITH))
        assert f"{without} and {adapted} % {where}" in alt


def test_what_it_says_of_auto_is_on_the_page_of_auto():
    page = (ROOT / "docs" / "auto.md").read_text()
    assert [number for number in re.findall(r"\d+\.\d+", between("auto")) if number not in page] == []


def test_it_is_read_aloud_in_three_minutes():
    prose = re.sub(r"```.*?```|<[^>]*>|\]\([^)]*\)|^\|[-:|]*$", " ", TEXT, flags=re.DOTALL | re.MULTILINE)
    assert len(re.findall(r"\w[\w'.,%]*", prose)) <= 3 * WORDS_PER_MINUTE


def test_its_links_lead_somewhere():
    targets = re.findall(r'\]\((?!https?:)([^)#]+)|src="([^"]+)"', TEXT)
    assert [path for pair in targets for path in pair if path and not (ROOT / path).exists()] == []
