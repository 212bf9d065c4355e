"""The command line: what `predbn` runs, with failures as one sentence.

The commands are in `commands/app.py`. Importing them takes seconds, because they import torch, so `main` does it: it
can then answer Ctrl-C from the first moment on.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from .commands.interrupts import report_interrupts


def main() -> None:
    """Run the command line. The exit code is 2 for a wrong argument, 1 for a failure and 130 for Ctrl-C.

    A `PredbnError` and an error of the operating system, such as a full disk, are printed as one sentence. Any other
    exception is a bug and shows its traceback, and so does everything with --debug or the environment variable
    PREDBN_DEBUG.
    """
    if sys.argv[1:] == ["--version"]:  # without torch, which takes seconds to import
        from . import __version__

        print(f"predbn {__version__}")
        return
    with report_interrupts():
        from .commands.os_errors import DEBUG, explain
        from .common import PredbnError, needs_extra

        try:
            with needs_extra("eval"):
                from .commands.app import app
            try:
                app()
            finally:
                _flush_output()
        except (PredbnError, OSError) as error:
            if os.environ.get(DEBUG):
                raise
            sentence = explain(error) if isinstance(error, OSError) else str(error)
            print(f"error: {sentence}", file=sys.stderr)
            sys.exit(1)


def _flush_output() -> None:
    """Write what was printed. If that fails, Python would try again at exit and fail without a sentence."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OSError(error.errno, error.strerror, "the standard output") from None


def __getattr__(name: str) -> Any:
    """`app`, the Typer application, is imported when it is asked for."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .commands.app import app

    return app


if __name__ == "__main__":
    main()
