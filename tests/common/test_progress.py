"""The progress bar shows counts and a note, and disappears."""

import io

import pytest
from rich.console import Console

from predbn.common import progress_bar


def frames(*calls: tuple, unit: str = "", quiet: bool = False) -> str:
    """Everything that is written to a terminal while the bar is there."""
    console = Console(file=io.StringIO(), width=120, force_terminal=True, quiet=quiet, color_system=None)
    with progress_bar(console, "decoding [x]", unit=unit) as report:
        for call in calls:
            report(*call)
    return console.file.getvalue()


def test_counts_unit_and_note():
    text = frames((1500, 20000, "zoo:x/[/0]"), unit="images")
    assert "decoding [x]" in text
    assert "1,500/20,000 images" in text
    assert "zoo:x/[/0]" in text
    assert "left" in text


def test_an_unknown_total():
    text = frames((7, None))
    assert " 7 " in text
    assert "None" not in text


@pytest.mark.parametrize(("calls", "quiet"), [((), False), (((1, 2),), True)])
def test_nothing_is_shown_without_a_call_or_on_a_quiet_console(calls, quiet):
    assert "decoding" not in frames(*calls, quiet=quiet)


def log_lines(monkeypatch, capsys, *, quiet: bool = False) -> list[str]:
    """What a log has of a call every four seconds."""
    console = Console(file=io.StringIO(), width=120, quiet=quiet)
    clock = iter(range(0, 100, 4))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    with progress_bar(console, "decoding [x]", unit="images") as report:
        for done in range(1, 7):
            report(done, 2000, "fog 3")
    assert console.file.getvalue() == ""
    return capsys.readouterr().err.splitlines()


def test_a_log_gets_a_line_every_ten_seconds(monkeypatch, capsys):
    assert log_lines(monkeypatch, capsys) == [
        "decoding [x]: 3/2,000 images, 12 s, fog 3",
        "decoding [x]: 6/2,000 images, 24 s, fog 3",
    ]


def test_a_quiet_log_gets_none(monkeypatch, capsys):
    assert log_lines(monkeypatch, capsys, quiet=True) == []


def test_it_disappears():
    console = Console(file=(terminal := io.StringIO()), width=120, force_terminal=True, color_system=None)
    with progress_bar(console, "decoding") as report:
        report(1, 2)
    assert terminal.getvalue().endswith("\x1b[2K")
