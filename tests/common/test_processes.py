"""Pools of worker processes: Ctrl-C, a killed parent, a killed worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from predbn.common import DataError, process_pool

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")

METHODS = ["fork", "spawn"]
SCRIPT = """
import os, sys, time
from predbn.common import process_pool

def work(seconds):
    os.write(1, b"%d\\n" % os.getpid())  # a whole line at once, however Python buffers
    time.sleep(seconds)

if __name__ == "__main__":
    try:
        with process_pool(2, sys.argv[1]) as pool:
            list(pool.map(work, [600, 600]))
    except KeyboardInterrupt:
        print("stopped", flush=True)
"""
"""Two workers that say their number and would sleep for ten minutes."""


@pytest.fixture(params=METHODS)
def parent(tmp_path, request):
    """The script, running, and the numbers of its workers."""
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), request.param]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, [int(process.stdout.readline()) for _ in range(2)]
        finally:
            process.kill()


def wait_until_ended(pids):
    """Wait until the processes are gone, or kill them and fail; one that nobody waits for stays as a zombie."""
    give_up = time.monotonic() + 60
    while left := [pid for pid in pids if is_running(pid)]:
        if time.monotonic() > give_up:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            pytest.fail(f"still running: {left}")
        time.sleep(0.05)


def is_running(pid) -> bool:
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return done.stdout.strip() != "" and not done.stdout.startswith("Z")


def test_workers_end_when_their_parent_is_killed(parent):
    process, pids = parent
    process.kill()
    process.wait()
    wait_until_ended(pids)


def test_only_the_parent_answers_ctrl_c(parent):
    process, pids = parent
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert output == "stopped\n"
    assert errors == ""
    wait_until_ended(pids)


def _number() -> int:
    return os.getpid()


def _end_by_kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _add(first: int, second: int) -> None:
    _state.append(first + second)


_state: list[int] = []


def _read_state() -> list[int]:
    return _state


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_that_the_system_kills_is_an_error_that_says_what_to_do(method):
    with pytest.raises(DataError, match=r"a worker process was killed, .* use fewer processes"):  # noqa: SIM117
        with process_pool(1, method, error=DataError) as pool:
            pool.submit(_end_by_kill).result()


@pytest.mark.parametrize("method", METHODS)
def test_workers_are_prepared_and_other_errors_pass_through(method):
    with pytest.raises(ZeroDivisionError), process_pool(1, method, initializer=_add, arguments=(1, 2)) as pool:
        assert pool.submit(_read_state).result() == [3]
        assert pool.submit(_number).result() != os.getpid()
        raise ZeroDivisionError


def test_an_interrupt_while_a_worker_starts_is_not_lost():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with process_pool(1, "fork") as pool:
        pool.submit(_number).result()
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_that_is_killed_when_all_work_is_done_holds_nobody_up(method):
    """An idle worker holds the lock of the queue, for which the others wait."""
    with process_pool(2, method) as pool:
        workers = {future.result() for future in [pool.submit(_number_later) for _ in range(2)]}
        pool.shutdown(wait=False)
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)  # as dead as it can be without the pool noticing


def _number_later() -> int:
    time.sleep(0.2)
    return os.getpid()
