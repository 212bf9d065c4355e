"""The command line as a person meets it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

import predbn
from predbn import cli

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
