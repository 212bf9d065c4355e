"""The command line as a whole: help, exit codes, errors."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

import predbn
from predbn import cli
from predbn.models import ModelError, zoo

runner = CliRunner()

FOLDERS = ["data", "models", "methods", "evaluation", "diagnostics", "training", "report", "paper"]
LATE = ["pandas", "altair", "cv2", "PIL", "pyarrow", *(f"predbn.{folder}" for folder in FOLDERS)]
UNKNOWN_NETWORK = ["zoo", "resnet20-cifar10/batch/77"]


@pytest.fixture(autouse=True)
def _no_debug(monkeypatch):
    # setenv first, so that what --debug sets is undone as well.
    monkeypatch.setenv(cli.DEBUG, "")


def main(monkeypatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["predbn", *arguments])
    cli.main()


def test_help_and_version():
    assert "demo" in runner.invoke(cli.app, ["--help"]).output
    assert runner.invoke(cli.app, ["--version"]).output.strip() == f"predbn {predbn.__version__}"


def test_a_wrong_command_is_a_usage_error():
    done = subprocess.run([sys.executable, "-m", "predbn.cli", "dmo"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "No such command 'dmo'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_failure_is_one_sentence_and_exit_code_1(monkeypatch, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(monkeypatch, *UNKNOWN_NETWORK)
    assert stopped.value.code == 1
    message = capsys.readouterr().err
    assert message.startswith("error: The zoo has no")
    assert message.count("\n") == 1


def test_debug_shows_the_traceback_of_a_failure(monkeypatch):
    with pytest.raises(ModelError, match="The zoo has no"):
        main(monkeypatch, "--debug", *UNKNOWN_NETWORK)


def test_the_environment_variable_does_the_same(monkeypatch):
    monkeypatch.setenv(cli.DEBUG, "1")
    with pytest.raises(ModelError, match="The zoo has no"):
        main(monkeypatch, *UNKNOWN_NETWORK)


@pytest.mark.parametrize("error", [ValueError, KeyError, RuntimeError])
def test_a_bug_keeps_its_traceback(monkeypatch, capsys, error):
    def fail():
        raise error("a bug")

    monkeypatch.setattr(zoo, "names", fail)
    with pytest.raises(error, match="a bug"):
        main(monkeypatch, "zoo")
    assert capsys.readouterr().err == ""


def test_a_bug_prints_its_traceback_and_exits_with_code_1():
    code = """
import sys
from predbn import cli
from predbn.models import zoo

def names():
    raise ValueError("a bug")

zoo.names = names
sys.argv = ["predbn", "zoo"]
cli.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert done.stderr.rstrip().endswith("ValueError: a bug")


def test_commands_import_what_is_slow_only_when_they_run():
    code = """
import sys
import predbn.cli
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & set(LATE)
