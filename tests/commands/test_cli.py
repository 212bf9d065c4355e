"""The command line as a whole: help, exit codes, errors."""

import errno
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer import Context
from typer.testing import CliRunner

import predbn
from predbn import cli
from predbn.commands.app import DEBUG
from predbn.commands.help import GROUPS
from predbn.commands.reference import pages
from predbn.models import ModelError, zoo

runner = CliRunner()

FOLDERS = ["data", "models", "methods", "evaluation", "diagnostics", "training", "report", "paper"]
LATE = ["pandas", "altair", "cv2", "PIL", "pyarrow", *(f"predbn.{folder}" for folder in FOLDERS)]
UNKNOWN_NETWORK = ["zoo", "resnet20-cifar10/batch/77"]


@pytest.fixture(autouse=True)
def _no_debug(monkeypatch):
    # setenv first, so that what --debug sets is undone as well.
    monkeypatch.setenv(DEBUG, "")


def main(monkeypatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["predbn", *arguments])
    cli.main()


def test_help_and_version():
    assert "demo" in runner.invoke(cli.app, ["--help"]).output
    assert runner.invoke(cli.app, ["--version"]).output.strip() == f"predbn {predbn.__version__}"


def commands(group, path=()):
    """All commands with their names."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


@pytest.mark.parametrize("columns", [80, 120])
def test_help_fits_the_terminal_and_has_no_types_and_bounds_of_python(columns):
    for path, _ in [((), None), *commands(typer.main.get_command(cli.app))]:
        shown = runner.invoke(cli.app, [*path, "--help"], env={"COLUMNS": str(columns)}).output
        assert max(map(len, shown.splitlines())) <= columns, path
        assert not re.search(r"<(bool|str|int|float|path|list\[str\])>|x<=|<=x|\d{10}", shown), path


def test_help_of_evaluate_begins_with_a_comparison_and_has_groups():
    shown = runner.invoke(cli.app, ["evaluate", "--help"], env={"COLUMNS": "80"}).output
    headings = re.findall(r"^(\w.*)$", shown.split("Examples")[1], re.MULTILINE)
    groups = ["Model", "Data", "Shifts", "Strategies and methods", "Measurement", "Output", "Engine"]
    assert [heading for heading in headings if heading in groups or heading == "Options"] == groups
    first_example = shown.split("predbn evaluate --model")[1]
    assert "--reference oldcam/ --data newcam/" in first_example


def test_ranges_are_in_words():
    shown = " ".join(runner.invoke(cli.app, ["doctor", "--help"], env={"COLUMNS": "80"}).output.split())
    assert "Severity of the corruption. [1 to 5; default: 3]" in shown
    assert "drawn at random. [at least 32; default: 1000]" in shown
    assert "Random seed. [default: 0]" in shown


def test_every_option_of_a_group_exists():
    named = {name for names in [*GROUPS.values()] for name in names.split()}
    there = {
        parameter.name
        for _, command in commands(typer.main.get_command(cli.app))
        for parameter in command.get_params(Context(command))
    }
    assert named - there == set()


def test_every_command_prints_json():
    without = [
        " ".join(path)
        for path, command in commands(typer.main.get_command(cli.app))
        if "as_json" not in {parameter.name for parameter in command.get_params(Context(command))}
    ]
    assert without == ["serve"]


def test_the_pages_of_the_reference_are_current():
    folder = Path(__file__).parents[2] / "docs" / "commands"
    assert {path.stem: path.read_text() for path in folder.glob("*.md")} == pages(), (
        "run: python -m predbn.commands.reference docs/commands"
    )


def test_examples_of_help_are_as_they_are_typed():
    for path, command in commands(typer.main.get_command(cli.app)):
        shown = runner.invoke(cli.app, [*path, "--help"], env={"COLUMNS": "80"}).output
        _, _, examples = (command.help or "").partition("Example")
        for line in examples.partition(":")[2].splitlines():
            assert line.strip() in shown, (path, line)
            assert len(line) <= 78, (path, line)


def test_the_corruption_has_one_name_in_all_commands():
    for path, command in commands(typer.main.get_command(cli.app)):
        options = {name for parameter in command.get_params(Context(command)) for name in parameter.opts}
        assert not {"--corruption", "--only"} & options, path
        assert "--shift" in options or path[0] not in ("evaluate", "doctor", "corrupt"), path


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


@pytest.fixture
def full_disk(monkeypatch):
    """A command that fails because the disk is full."""

    def fail():
        raise OSError(errno.ENOSPC, "No space left on device", "runs/3.checkpoint.part")

    monkeypatch.setattr(zoo, "names", fail)


def test_an_error_of_the_system_is_one_sentence_with_path_and_remedy(monkeypatch, capsys, full_disk):
    with pytest.raises(SystemExit) as stopped:
        main(monkeypatch, "zoo")
    assert stopped.value.code == 1
    assert capsys.readouterr().err == (
        "error: runs/3.checkpoint.part cannot be written (No space left on device): free some space, or choose another "
        "disk, and run the same command again.\n"
    )


def test_debug_shows_the_traceback_of_an_error_of_the_system(monkeypatch, full_disk):
    with pytest.raises(OSError, match="No space left"):
        main(monkeypatch, "--debug", "zoo")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /dev/full")
def test_output_that_cannot_be_written_is_a_failure():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "predbn.cli", "zoo"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["evaluate", "--out", ""], "the value of --out is empty"),
        (["evaluate", "--out="], "the value of --out is empty"),
        (["corrupt", "", "there"], "an argument is empty"),
        (["data", "criteo", "--root", ""], "the value of --root is empty"),
    ],
)
def test_an_empty_argument_is_a_usage_error(arguments, what):
    done = runner.invoke(cli.app, arguments)
    assert done.exit_code == 2
    assert what in done.output


@pytest.mark.parametrize("error", [ValueError, KeyError, RuntimeError])
def test_a_bug_keeps_its_traceback(monkeypatch, capsys, error):
    def fail():
        raise error("a bug")

    monkeypatch.setattr(zoo, "names", fail)
    with pytest.raises(error, match="a bug"):
        main(monkeypatch, "zoo")
    assert capsys.readouterr().err == ""


def test_the_end_of_a_file_is_a_bug_and_not_the_users_wish(monkeypatch):
    def fail():
        raise EOFError("No data left in file")

    monkeypatch.setattr(zoo, "names", fail)
    with pytest.raises(RuntimeError) as raised:
        main(monkeypatch, "zoo")
    assert isinstance(raised.value.__cause__, EOFError)


def test_a_wrong_command_is_a_usage_error(monkeypatch, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(monkeypatch, "dmo")
    assert stopped.value.code == 2
    assert "No such command 'dmo'" in capsys.readouterr().err


def test_modules_are_imported_as_late_as_possible():
    code = """
import sys
sys.argv = ["predbn", "--version"]
import predbn.cli
print(*sys.modules)  # ready for Ctrl-C
predbn.cli.main()
print(*sys.modules)
import predbn.commands.app
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ready, version, after_version, all_commands = (set(line.split()) for line in done.stdout.splitlines())
    assert not ready & {"torch", "numpy", "typer", "rich", "predbn.common"}
    assert predbn.__version__ in version
    assert "torch" not in after_version
    assert not all_commands & set(LATE)
