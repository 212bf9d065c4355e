"""`predbn serve` in a process of its own, which begins with everything imported, so that it starts in a moment."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .running import Running, wait_until

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["predbn.cli", "predbn.commands.app", "predbn.serving", "tests.serving.served_model"])


def _serve(log: Path, options: list[str]) -> None:
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup, under which the tests may run, ignores it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["predbn", "serve", *options]
    from predbn.cli import main

    main()


class Process(Running):
    """A server that was started by the command line."""

    def __init__(self, state: Path, *options: str, model: str = "build") -> None:
        self._log = state / "log"
        self._log.touch()
        self._begin = self._log.stat().st_size
        named = ["--model", f"tests.serving.served_model:{model}", "--port", "0", "--device", "cpu"]
        self.process = _FORKS.Process(target=_serve, args=(self._log, [*named, "--state", str(state), *options]))
        self.process.start()
        self.wait_for("serving")
        address = next(entry["address"] for entry in self.log if entry["event"] == "serving")
        super().__init__(address.removeprefix("http://"), None)  # type: ignore[arg-type]
        wait_until(lambda: self._is_ready())

    @property
    def log(self) -> list[dict[str, Any]]:
        """What it has logged; the last line may be a sentence."""
        lines = self._log.read_bytes()[self._begin :].decode().splitlines(keepends=True)
        return [json.loads(line) if line[0] == "{" else {"event": line.strip()} for line in lines if line[-1] == "\n"]

    def wait_for(self, event: str, count: int = 1) -> None:
        """Until it has logged so many of these events."""

        def is_there() -> bool:
            assert self.process.is_alive(), self.log
            return sum(entry["event"] == event for entry in self.log) >= count

        wait_until(is_there)

    def _is_ready(self) -> bool:
        try:
            return self.ask("GET", "/v2/health/ready").status == 200
        except OSError:
            return False

    def end(self, number: int) -> int | None:
        """Send a signal; the exit status."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)
        self.process.join(60)
        return self.process.exitcode


@contextmanager
def process(state: Path, *options: str, model: str = "build") -> Iterator[Process]:
    """A server with the strategy `ema` unless the options have another one, which is killed at the end of the block."""
    server = Process(state, *([] if "--strategy" in options else ["--strategy", "ema"]), *options, model=model)
    try:
        yield server
    finally:
        if server.process.is_alive():
            server.end(signal.SIGKILL)
