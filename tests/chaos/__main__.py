"""Disturb every command that writes files, and count what is lost or silently wrong.

    python -m tests.chaos                # a few minutes on two cores; writes results/reliability.json
    python -m tests.chaos --markdown     # prints the tables of docs/reliability.md from it, and tries nothing

A round has one trial of each kind for each command: it is stopped by kill -9 and by Ctrl-C up to four times and resumed
each time, one of its files is torn, its disk is full, and it is started twice at once. Afterwards its folder must be
that of an undisturbed run, byte for byte. Then single bits are flipped in a file of every kind.

The same seed makes the same trials. In every second round, signals come up to 50 ms after the chosen access, while
something is computed or written: what they hit then depends on the speed of the machine.
"""

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from .commands import make_commands
from .files import written_files
from .flips import flip_bits
from .trials import (
    IN_OWN_MOUNTS,
    SIGNALS,
    Subject,
    fill_disk,
    make_subject,
    may_mount,
    read_during_run,
    stop_and_resume,
    tear,
    two_at_once,
)

RESULT = Path(__file__).resolve().parents[2] / "results" / "reliability.json"
TORN, FULL, TWICE, READ = "a file is torn", "the disk is full", "two at once", "read during a run"
_ON_SMALL_DISK = "PREDBN_CHAOS_MAY_MOUNT"


class Tally:
    """How many trials of each kind there were for each command, how many held, and what went wrong in the others."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
        self.problems: list[str] = []

    def add(self, kind: str, command: str, problem: str | None, *, count: int = 1) -> None:
        """Add `count` trials, of which one may have failed."""
        held, tried = self.counts[kind][command]
        self.counts[kind][command] = [held + count - (problem is not None), tried + count]
        if problem is not None:
            self.problems.append(f"{kind}, {command}: {problem}")
        print(f"{kind:18} {command:18} {'held' if problem is None else problem}", flush=True)


def make_subjects(folder: Path, *, ray: bool) -> dict[str, Subject]:
    """Run every command once, undisturbed."""
    os.environ["PREDBN_CACHE"] = str(folder / "cache")
    subjects = {}
    for command in make_commands(folder):
        if command.uses_ray and not ray:
            continue
        (folder / command.name).mkdir()
        subjects[command.name] = make_subject(command, folder / command.name)
        print(f"{command.name}: {subjects[command.name].accesses} accesses to its folder", flush=True)
    return subjects


def disturb(subjects: Sequence[Subject], tally: Tally, rounds: int, seed: int, *, disk: bool) -> None:
    """So many trials of each kind for each command; with `disk`, also those that need a small disk."""
    others: dict[str, Callable[[Subject, random.Random], str | None]] = {TORN: tear, TWICE: two_at_once}
    for number in range(rounds):
        for subject in subjects:
            name = subject.command.name
            for kind, signal in SIGNALS.items():
                chance, longest_delay = random.Random(f"{seed} {number} {kind} {name}"), 0.05 * (number % 2)
                stops, problem = stop_and_resume(subject, signal, chance, longest_delay=longest_delay)
                tally.add(kind, name, problem, count=stops or problem is not None)
            if subject.command.uses_ray:  # it writes its files as the other evaluations do
                continue
            for kind, trial in (others | ({FULL: fill_disk} if disk else {})).items():
                tally.add(kind, name, trial(subject, random.Random(f"{seed} {number} {kind} {name}")))
            if name == "evaluate":
                reads, problem = read_during_run(subject)
                tally.add(READ, name, problem, count=reads or problem is not None)


def flip(subjects: dict[str, Subject], tally: Tally, count: int, seed: int) -> dict[str, dict[str, int]]:
    """Flip bits in a file of every kind."""
    found = {}
    for kind, (path, read) in written_files(subjects).items():
        flips = flip_bits(path, read, count=count, seed=seed)
        found[kind] = {"tried": flips.tried, "noticed": flips.noticed, "silent": len(flips.changed)}
        print(f"{kind}: {flips.noticed} of {flips.tried} flips noticed, {len(flips.changed)} silent", flush=True)
        if flips.changed:
            tally.problems.append(f"{kind}: the flips of the bits {flips.changed} changed what is read")
    return found


def summary(results: dict[str, Any]) -> str:
    """One sentence: how much was tried, and what was lost."""
    cells = {kind: list(commands.values()) for kind, commands in results["trials"].items()}
    held = {kind: tuple(map(sum, zip(*counts, strict=True))) for kind, counts in cells.items()}
    stops = tuple(map(sum, zip(*(held[kind] for kind in SIGNALS), strict=True)))
    flips = results["flips"].values()
    noticed, tried = (sum(row[name] for row in flips) for name in ("noticed", "tried"))
    silent = sum(row["silent"] for row in flips)
    lost = "nothing was lost" if not results["problems"] else f"{len(results['problems'])} trials failed"
    parts = [f"kills and interrupts survived: {stops[0]:,} of {stops[1]:,}"]
    parts += [f"{kind}: {held[kind][0]:,} of {held[kind][1]:,}" for kind in held if kind not in SIGNALS]
    return f"{'; '.join(parts)}; flipped bits noticed: {noticed:,} of {tried:,}, {silent} silent; {lost}."


def markdown(results: dict[str, Any] | None = None) -> str:
    """The tables of docs/reliability.md."""
    results = results or json.loads(RESULT.read_text(encoding="utf-8"))
    names = list(next(iter(results["trials"].values())))
    lines = [f"| held, of all trials | {' | '.join(names)} |", f"|---|{'--:|' * len(names)}"]
    for kind, row in results["trials"].items():
        cells = [f"{row[name][0]:,} of {row[name][1]:,}" if name in row else "" for name in names]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    lines += ["", "| flipped bits in | tried | noticed | silently wrong |", "|---|--:|--:|--:|"]
    for kind, counts in results["flips"].items():
        lines.append(f"| {kind} | {counts['tried']:,} | {counts['noticed']:,} | {counts['silent']} |")
    text = summary(results)
    return "\n".join([*lines, "", text[0].upper() + text[1:]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--flips", type=int, default=1500, help="flipped bits per kind of file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-ray", action="store_false", dest="ray", help="leave out the evaluation with Ray")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--markdown", action="store_true", help="print the tables from results/")
    options = parser.parse_args()
    if options.markdown:
        print(markdown())
        return
    if _ON_SMALL_DISK not in os.environ and may_mount():
        command = [*IN_OWN_MOUNTS, sys.executable, "-m", "tests.chaos", *sys.argv[1:]]
        sys.exit(subprocess.run(command, env={**os.environ, _ON_SMALL_DISK: "1"}).returncode)
    disk = _ON_SMALL_DISK in os.environ
    if not disk:
        print("This system does not let users mount a small disk: full disks are not tried.")
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="predbn-chaos-") as folder:
        subjects = make_subjects(Path(folder), ray=options.ray)
        disturb(list(subjects.values()), tally, options.rounds, options.seed, disk=disk)
        flips = flip(subjects, tally, options.flips, options.seed)
    card = {
        "command": f"python -m tests.chaos --rounds {options.rounds} --flips {options.flips} --seed {options.seed}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.system(),
        "hardware": platform.machine(),
        "cores": os.cpu_count(),
    }
    results = {"card": card, "trials": tally.counts, "flips": flips, "problems": tally.problems}
    options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(summary(results))
    print(f"written to {options.out}")
    sys.exit(bool(tally.problems))


if __name__ == "__main__":
    main()
