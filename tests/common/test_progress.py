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


def test_it_disappears():
    # A console that is not a terminal shows only what stays in the end.
    console = Console(file=io.StringIO(), width=120)
    with progress_bar(console, "decoding") as report:
        report(1, 2)
    assert console.file.getvalue().strip() == ""
