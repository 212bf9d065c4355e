"""Ctrl-C: what is said, and the exit code."""

import signal
import subprocess
import sys

import pytest

from predbn import cli
from predbn.commands.interrupts import if_interrupted, report_interrupts
from predbn.models import zoo

ALWAYS = "interrupted: what was finished is kept, and no file is half-written; run the same command again.\n"


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def said(capsys, block) -> str:
    """What is printed if the block is run as a command, which must end with exit code 130."""
    with pytest.raises(SystemExit) as stopped, report_interrupts():
        block()
    assert stopped.value.code == 130
    return capsys.readouterr().err


def test_the_sentence_is_that_of_the_innermost_block(capsys):
    def block():
        with if_interrupted("all is kept."):
            with if_interrupted("some is kept."):
                pass
            interrupt()

    assert said(capsys, block) == "interrupted: all is kept.\n"


def test_outside_of_a_block_the_sentence_is_true_of_every_command(capsys):
    assert said(capsys, interrupt) == ALWAYS


def test_an_interrupt_that_a_library_turns_into_another_error_is_still_one(capsys):
    def block():
        with if_interrupted("kept."):
            try:
                interrupt()
            except KeyboardInterrupt:
                raise RuntimeError("a library was interrupted") from None

    assert said(capsys, block) == "interrupted: kept.\n"


def test_a_command_that_ends_well_in_spite_of_an_interrupt_has_ended_well():
    with pytest.raises(SystemExit) as stopped, report_interrupts():
        with pytest.raises(KeyboardInterrupt):
            interrupt()
        sys.exit(0)
    assert stopped.value.code == 0


def test_the_second_interrupt_ends_the_process_at_once(capsys):
    said(capsys, interrupt)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL


def test_the_handler_is_put_back():
    with report_interrupts():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_that_the_caller_ignores_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with report_interrupts():
        interrupt()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_every_command_is_covered(monkeypatch, capsys):
    monkeypatch.setattr(zoo, "names", interrupt)
    monkeypatch.setattr(sys, "argv", ["predbn", "zoo"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 130
    assert capsys.readouterr().err == ALWAYS


CONTINUE = "run the same command again to continue."
FINISHED = f"what is finished is kept in there; {CONTINUE}"


@pytest.mark.parametrize(
    ("function", "line", "sentence"),
    [
        ("evaluation.evaluate", "evaluate --model zoo:resnet20-cifar10/batch/0 --out there", FINISHED),
        ("evaluation.evaluate", "demo --out there", FINISHED),
        ("paper.run_plan", "paper run C3 --quick --results there", FINISHED),
        ("training.train_cifar10", "train cifar10 --sample --out there",
         "the networks and checkpoints written so far are kept in there; add --resume to continue from them."),
        ("data.write_cifar10c", f"corrupt {__file__} there",
         f"the files that are finished are kept in there; {CONTINUE}"),
        ("data.prepare_synthetic", "data criteo --synthetic 9 --out there",
         "nothing is kept; run the same command again, which takes a minute or two for the whole file."),
    ],
)  # fmt: skip
def test_long_commands_say_what_is_kept_and_how_to_go_on(monkeypatch, tmp_path, capsys, function, line, sentence):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(f"predbn.{function}", lambda *given, **options: interrupt())
    monkeypatch.setattr(sys, "argv", ["predbn", *line.split()])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 130
    assert capsys.readouterr().err == f"interrupted: {sentence}\n"


@pytest.mark.parametrize("module", ["torch", "predbn.commands.calibrate"])
def test_an_interrupt_while_modules_are_imported_has_no_traceback(module):
    code = f"""
import signal, sys

class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
sys.argv = ["predbn", "zoo"]
from predbn.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode in (130, -signal.SIGINT)  # a shell shows both as 130
    assert done.stderr == ALWAYS
