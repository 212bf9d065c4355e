"""A worker ends with its parent."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills a process")

SCRIPT = """
import time
from multiprocessing import get_context
from predbn.common import end_with_parent

def work():
    end_with_parent()
    print("working", flush=True)
    time.sleep(600)

if __name__ == "__main__":
    get_context("fork").Process(target=work).start()
    time.sleep(600)
"""


def test_a_worker_ends_when_its_parent_is_killed():
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        process.kill()
        # The worker has the same standard output: reading it to its end waits for the worker.
        assert process.communicate(timeout=60)[0] == ""
