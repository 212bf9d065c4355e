"""The command line as a person meets it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

import predbn
from predbn import cli, demo

runner = CliRunner()


def test_help_and_version():
    assert "demo" in runner.invoke(cli.app, ["--help"]).output
    assert runner.invoke(cli.app, ["--version"]).output.strip() == f"predbn {predbn.__version__}"


def test_a_wrong_command_is_a_usage_error():
    done = subprocess.run([sys.executable, "-m", "predbn.cli", "dmo"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "No such command 'dmo'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_failure_is_one_sentence(monkeypatch, capsys):
    def fail():
        raise predbn.AdaptationError("no batch norm here")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 1
    assert capsys.readouterr().err == "error: no batch norm here\n"


def test_the_demo_finds_what_the_paper_says(monkeypatch):
    model = demo.make_model()
    for _ in demo.train(model, epochs=2):
        pass
    rows = list(demo.compare(model))
    assert {(name, severity) for name, severity, *_ in rows} == {(n, s) for n in demo.SHIFTS for s in range(6)}
    severe = [(source, batch) for _, severity, source, batch in rows if severity >= 3]
    gain = sum(batch.accuracy - source.accuracy for source, batch in severe) / len(severe)
    assert gain > 0.1
    assert not isinstance(model[1], predbn.norm.layer.AdaptedLayer)


def test_the_demo_prints_a_table(monkeypatch):
    monkeypatch.setattr(demo, "train", lambda model: iter([(1, 1)]))
    scores = demo.Score(0.5, 0.25), demo.Score(0.75, 0.125)
    rows = [(name, severity, *scores) for name in demo.SHIFTS for severity in demo.SEVERITIES]
    monkeypatch.setattr(demo, "compare", lambda model: iter(rows))
    result = runner.invoke(cli.app, ["demo"])
    assert result.exit_code == 0
    assert "75% .12" in result.output
    assert "better in 20 of 20 cases" in " ".join(result.output.split())
