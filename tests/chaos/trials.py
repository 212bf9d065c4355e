"""Trials: a command is disturbed, and its folder must then be what an undisturbed run writes.

Each trial returns None if that holds, or else what went wrong.
"""

import csv
import json
import random
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from predbn.common import PARTIAL_SUFFIX, PredbnError
from predbn.evaluation import Results

from .commands import Command, Ended, Stop

Contents = dict[str, Any]
SIGNALS = {"kill -9": signal.SIGKILL, "Ctrl-C": signal.SIGINT}
_MAX_STOPS = 4


@dataclass(frozen=True)
class Subject:
    """A command, what an undisturbed run of it writes, how often it accesses its folder, and room for trials."""

    command: Command
    contents: Contents
    accesses: int
    folder: Path

    def new_folder(self) -> Path:
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        return out

    def difference(self, out: Path) -> str | None:
        """The first file that differs from that of the undisturbed run."""
        found = read_contents(out)
        for name in sorted(found.keys() | self.contents.keys()):
            if found.get(name) != self.contents.get(name):
                return f"{name} is {'missing' if name not in found else 'different'}"
        return None

    def finish(self, out: Path) -> str | None:
        """Run the command to its end, and compare."""
        ended = self.command.run(out)
        return f"exit code {ended.code}: {ended.said}" if ended.code else self.difference(out)


def make_subject(command: Command, folder: Path) -> Subject:
    """Run the command undisturbed."""
    ended = command.run(folder / "whole")
    if ended.code:
        raise RuntimeError(f"{command.name} ended with code {ended.code}: {ended.said}")
    return Subject(command, read_contents(folder / "whole"), ended.accesses, folder)


def read_contents(folder: Path) -> Contents:
    """Every file in a folder, byte for byte, except for locks.

    Two things may differ: the seconds that an epoch took in a log, and which nodes of a Ray cluster did the work.
    """
    contents: Contents = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.suffix == ".csv":
            with path.open(newline="") as file:
                contents[name] = [{**row, "seconds": ""} for row in csv.DictReader(file)]
        elif path.name == "card.json" and b'"engine": "ray"' in (content := path.read_bytes()):
            contents[name] = {**json.loads(content), "hardware": "", "checksum": ""}
        elif path.is_file() and not path.name.startswith("."):
            contents[name] = path.read_bytes()
    return contents


def stop_and_resume(
    subject: Subject, number: int, chance: random.Random, *, longest_delay: float
) -> tuple[int, str | None]:
    """Stop the command by a signal a few times, start it again after each, and compare.

    The signal comes at a random access, or up to `longest_delay` seconds after it. Also returns how often it came.
    """
    out, stops = subject.new_folder(), 0
    for _ in range(chance.randint(1, _MAX_STOPS)):
        stop = Stop(number, chance.randint(1, subject.accesses), chance.uniform(0, longest_delay))
        ended = subject.command.run(out, stop)
        if ended.code == 0:
            break
        stops += 1
        problem = _problem_of_stop(ended, stop)
        if problem is not None:
            return stops, problem
    return stops, subject.finish(out)


def _problem_of_stop(ended: Ended, stop: Stop) -> str | None:
    if not ended.all_ended:
        return "processes are left over"
    if "Traceback" in ended.said:
        return f"a traceback: {ended.said}"
    if stop.signal == signal.SIGKILL:
        is_worker = ended.code == 1 and "a worker process was killed" in ended.said
        return None if ended.code == -signal.SIGKILL or is_worker else f"exit code {ended.code}: {ended.said}"
    is_told = re.search(r"^interrupted: .*\n\Z", ended.said, re.MULTILINE) is not None
    return None if ended.code == 130 and is_told else f"exit code {ended.code} after Ctrl-C: {ended.said}"


def tear(subject: Subject, chance: random.Random) -> str | None:
    """Leave one file of a finished or a killed run half-written, and run the command again.

    It has to repair the file; or to refuse it by name, and to repair it after the named files are removed; or, if what
    the folder holds can no longer be known, to ask for another folder.
    """
    out = subject.new_folder()
    if chance.random() < 0.5:
        subject.command.run(out, Stop(signal.SIGKILL, chance.randint(1, subject.accesses)))
    else:
        shutil.copytree(subject.folder / "whole", out)
    files = [path for path in sorted(out.rglob("*")) if path.is_file() and not path.name.startswith(".")]
    files = [path for path in files if path.suffix != ".csv"]  # a log is only appended to
    if not files:
        return subject.finish(out)
    torn = chance.choice(files)
    content = torn.read_bytes()
    content = content[: chance.randrange(len(content) + 1)]
    if chance.random() < 0.5:
        torn.write_bytes(content)
    else:
        torn.unlink()
        torn.with_name(torn.name.removesuffix(PARTIAL_SUFFIX) + PARTIAL_SUFFIX).write_bytes(content)
    ended = subject.command.run(out)
    if ended.code == 0:
        difference = subject.difference(out)
        return difference and f"{torn.relative_to(out)} was torn, and {difference}"
    needs_new_folder = re.search("choose another|in another folder", ended.said) is not None
    if ended.code != 1 or "Traceback" in ended.said or (torn.name not in ended.said and not needs_new_folder):
        return f"{torn.relative_to(out)} was torn: exit code {ended.code}: {ended.said}"
    if needs_new_folder:
        return None
    for path in files:
        if path.name in ended.said:
            path.unlink(missing_ok=True)
    return subject.finish(out)


def two_at_once(subject: Subject, chance: random.Random) -> str | None:
    """Start the command again while it runs: one of them finishes, the other too or says that it is locked out."""
    out = subject.new_folder()
    first, access = subject.command.start(out), chance.randint(1, subject.accesses)
    while first.accesses < access and first.process.is_alive():
        time.sleep(0.001)
    both = [subject.command.start(out).wait(), first.wait()]
    for ended in both:
        if ended.code and (ended.code != 1 or "another process is writing to" not in ended.said):
            return f"exit code {ended.code}: {ended.said}"
    return "neither has finished" if all(ended.code for ended in both) else subject.difference(out)


def fill_disk(subject: Subject, chance: random.Random) -> str | None:
    """Run the command on a disk that is too small, make room, and run it again. Needs the right to mount."""
    disk = subject.folder / "disk"
    disk.mkdir(exist_ok=True)
    size = sum(path.stat().st_size for path in (subject.folder / "whole").rglob("*") if path.is_file())
    _mount("-t", "tmpfs", "-o", f"size={chance.randint(1, max(1, size // 4096)) * 4096}", "tmpfs", str(disk))
    try:
        ended = subject.command.run(disk / "out")
        if ended.code and (ended.code != 1 or "Traceback" in ended.said or "No space left" not in ended.said):
            return f"exit code {ended.code} on a full disk: {ended.said}"
        _mount("-o", "remount,size=1g", str(disk))
        return subject.finish(disk / "out")
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


IN_OWN_MOUNTS = ("unshare", "--user", "--map-root-user", "--mount")
"""Run a program where it may mount disks that nobody else sees."""


def may_mount() -> bool:
    """Whether this system allows that."""
    try:
        done = subprocess.run([*IN_OWN_MOUNTS, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True)
    except FileNotFoundError:
        return False
    return done.returncode == 0


def read_during_run(subject: Subject) -> tuple[int, str | None]:
    """Read the results again and again while an evaluation writes them; also returns how often."""
    out, reads = subject.new_folder(), 0
    expected = _rows(Results.load(subject.folder / "whole"))
    running, problem = subject.command.start(out), None
    while running.process.is_alive() and problem is None:
        try:
            found = _rows(Results.load(out))
        except PredbnError as error:
            if not re.search("has no run in it|has no results yet", str(error)):
                problem = str(error)
            continue
        reads += 1
        if not found <= expected:
            problem = "a read has returned rows that are wrong"
    running.wait()
    return reads, problem or subject.difference(out)


def _rows(results: Results) -> set[str]:
    return {json.dumps(row, sort_keys=True) for row in results.frame.to_dict("records")}
