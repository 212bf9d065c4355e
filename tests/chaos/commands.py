"""The commands that the trials disturb, and how one of them is run: in a process of its own, which a signal can end.

A new interpreter needs seconds to import torch. The processes are therefore forked from a server that has imported it.

A signal comes at a chosen access of the command to its output folder (a file is opened, renamed or removed), or some
milliseconds after it. That is where something can be lost, and the same seed disturbs a command at the same places.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from predbn.data import prepare_criteo, sample
from tests.data.criteo.examples import write_lines
from tests.evaluation.tiny import prepared

_ACCESSES = ("open", "os.rename", "os.remove", "os.mkdir")
_SECONDS = 300
"""After this time a command hangs."""
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(
    ["predbn.cli", "predbn.commands.app", "predbn.evaluation", "predbn.training", "predbn.data", "torch._dynamo"]
)


class Stop(NamedTuple):
    """A signal that comes at the access to the output folder of this number, or so many seconds after it."""

    signal: int
    access: int
    delay: float = 0


class Ended(NamedTuple):
    """The exit code, what the command said, how often it accessed its folder, and whether all its processes ended."""

    code: int
    said: str
    accesses: int
    all_ended: bool


@dataclass(frozen=True)
class Command:
    """A command line without its output folder, which comes last.

    Two agents of a local Ray cluster outlive a killed command by a minute: they are not waited for.
    """

    name: str
    arguments: tuple[str, ...]

    @property
    def uses_ray(self) -> bool:
        return "ray" in self.arguments

    def run(self, out: Path, stop: Stop | None = None) -> Ended:
        """Run it to its end."""
        return self.start(out, stop).wait()

    def start(self, out: Path, stop: Stop | None = None) -> Running:
        """Run it in the background."""
        return Running([*self.arguments, str(out)], out, stop, waits_for_all=not self.uses_ray)


class Running:
    """A command that runs."""

    def __init__(self, arguments: Sequence[str], out: Path, stop: Stop | None, *, waits_for_all: bool) -> None:
        handle, said = tempfile.mkstemp(prefix="predbn-chaos-")
        os.close(handle)
        self._said, self._accesses, self._waits_for_all = Path(said), _server.RawValue("i", 0), waits_for_all
        self.process = _server.Process(target=_run, args=(list(arguments), str(out), said, stop, self._accesses))
        self.process.start()

    @property
    def accesses(self) -> int:
        """How often it has accessed its folder so far."""
        return int(self._accesses.value)

    def wait(self) -> Ended:
        """Wait until it and the processes that it has started have ended; what hangs is killed."""
        deadline = time.monotonic() + _SECONDS
        self.process.join(_SECONDS)
        hangs = self.process.is_alive()
        while self._waits_for_all and self._reaches_group(0) and not hangs:
            hangs = time.monotonic() > deadline
            time.sleep(0.02)
        self._reaches_group(signal.SIGKILL)
        self.process.join()
        said = self._said.read_text(errors="replace")
        self._said.unlink()
        return Ended(self.process.exitcode, said, self.accesses, not hangs)

    def _reaches_group(self, number: int) -> bool:
        """Whether there are processes that this one has started, which get the signal."""
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            return False
        return True


def _run(arguments: list[str], out: str, said: str, stop: Stop | None, accesses: Any) -> None:
    """The process of a command. It leads a group of its own, like a command that a shell starts."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it starts with & ignore Ctrl-C
    with open(said, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.addaudithook(_counter(out, stop, accesses))
    sys.argv = ["predbn", *arguments]
    from predbn.cli import main

    main()


def _counter(out: str, stop: Stop | None, accesses: Any) -> Any:
    """Counts the accesses to the folder, also those of forked workers, and sends the signal."""

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _ACCESSES and str(arguments[0]).startswith(out):
            accesses.value += 1
            if stop is not None and accesses.value == stop.access:
                if stop.delay:
                    timer = threading.Timer(stop.delay, _send, [stop.signal])
                    timer.daemon = True
                    timer.start()
                else:
                    _send(stop.signal)

    return count


def _send(number: int) -> None:
    """Ctrl-C reaches every process of a command, kill -9 only one."""
    if number == signal.SIGINT:
        os.killpg(0, number)
    else:
        os.kill(os.getpid(), number)


def make_labels(images: torch.Tensor) -> npt.NDArray[np.int64]:
    """What the network of the evaluations predicts, but some are wrong: otherwise no temperature could be fitted."""
    with torch.no_grad():
        labels = prepared()(images).argmax(1).numpy()
    labels[::4] = (labels[::4] + 1) % 10
    return labels


def make_commands(folder: Path) -> list[Command]:
    """Write small inputs to a folder, and return the commands that use them."""
    images = sample("test").take(12)
    pixels = np.ascontiguousarray(images.images.permute(0, 2, 3, 1).numpy())
    np.save(folder / "images.npy", pixels)
    np.save(folder / "labels.npy", make_labels(images.images))
    for number, picture in enumerate(pixels[:4]):
        path = folder / "pictures" / str(number % 2) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).resize((224, 224)).save(path)
    write_lines(folder / "train.txt", 60_000)
    write_lines(folder / "few.txt", 800)
    prepare_criteo(folder / "few.txt", folder / "rows", threads=1)
    options = "--batch-size 6 --device cpu --no-report --quiet"
    shifts = "--shift fog --shift contrast --severity 1 --severity 5"
    evaluate = f"evaluate --model tests.evaluation.tiny:prepared --data {folder} {shifts} {options}"
    criteo = "--widths 8,4 --max-buckets 20 --max-dimensions 2 --batch-size 128 --epochs 2 --checkpoint-every 2"
    lines = {
        "evaluate": f"{evaluate} --method vanilla --method temperature --validation {folder} --hits --out",
        "evaluate, Ray": f"{evaluate} --engine ray --address local --out",
        "train": f"train criteo --root {folder}/rows {criteo} --device cpu --quiet --resume --out",
        "corrupt, arrays": f"corrupt {folder}/images.npy --shift fog --shift contrast",
        "corrupt, pictures": f"corrupt {folder}/pictures --shift fog --shift contrast",
        "data criteo": f"data criteo --root {folder}/train.txt --quiet --out",
    }
    return [Command(name, tuple(line.split())) for name, line in lines.items()]
