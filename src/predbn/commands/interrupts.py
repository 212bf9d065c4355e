"""Ctrl-C: one sentence that says what is kept and how to go on, and exit code 130.

Only the standard library is imported here: an interrupt must be answered while the rest is still being imported.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130
"""The exit code: 128 + SIGINT, as shells report it."""

_advice = ["what was finished is kept, and no file is half-written; run the same command again."]
"""What to tell the user if Ctrl-C comes now. The last entry counts; the first is true of every command."""
_advice_given: list[str] = []
"""The advice at the moment of each Ctrl-C."""


@contextmanager
def if_interrupted(advice: str) -> Iterator[None]:
    """Say this sentence if the block is interrupted: what is kept, and how to go on."""
    _advice.append(advice)
    try:
        yield
    finally:
        _advice.pop()


@contextmanager
def report_interrupts() -> Iterator[None]:
    """Around the whole command line: an interrupt ends it with the sentence of the innermost `if_interrupted`.

    The signal is recorded, and not only raised as KeyboardInterrupt, because libraries turn that into other errors on
    its way here. A second Ctrl-C ends the process at once: every file is written atomically, so nothing is damaged.
    """
    _advice_given.clear()
    is_replaced = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not if the caller ignores it, as nohup does
    )
    if is_replaced:
        signal.signal(signal.SIGINT, _record)
    try:
        yield
    except BaseException as error:
        is_finished = isinstance(error, SystemExit) and not error.code
        is_interrupted = isinstance(error, KeyboardInterrupt) or (bool(_advice_given) and not is_finished)
        if not is_interrupted:
            raise
        if is_replaced:
            is_replaced = False
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        print(f"interrupted: {_advice_given[0] if _advice_given else _advice[0]}", file=sys.stderr)
        sys.exit(INTERRUPTED)
    finally:
        if is_replaced:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def interrupt(advice: str) -> NoReturn:
    """End a command that has handled Ctrl-C itself, with a sentence."""
    _advice_given.append(advice)
    raise KeyboardInterrupt


def _record(number: int, frame: FrameType | None) -> None:
    _advice_given.append(_advice[-1])
    raise KeyboardInterrupt
