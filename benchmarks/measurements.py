"""What all benchmarks share: results as JSON in results/, and Markdown tables for the documents."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from predbn.common import git_commit, hardware_of, package_versions, write_text

RESULTS = Path(__file__).resolve().parent.parent / "results"


def read_results(path: Path) -> Any:
    """What was measured last."""
    return json.loads(path.read_text(encoding="utf-8"))


def write_results(path: Path, content: object) -> None:
    """Write results as JSON, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, left: Sequence[int] = (0,)) -> str:
    """A table whose columns are aligned right, except for those with the indices `left`."""
    rulers = "|".join("---" if number in left else "--:" for number in range(len(headings)))
    heading = f"| {' | '.join(headings)} |".replace("|  |", "| |")
    return "\n".join([heading, f"|{rulers}|", *(f"| {' | '.join(cells)} |" for cells in rows)])


class ResultsFile:
    """Units by name, and a card. Each unit is written at once, so that an interrupted measurement continues."""

    def __init__(self, path: Path, setup: dict[str, Any], device: torch.device) -> None:
        self._path = path
        self._card = {
            "command": " ".join(["python", *sys.argv]),
            "setup": setup,
            "software": {"commit": git_commit(Path(__file__)), **package_versions()},
            "hardware": {**hardware_of(str(device)), "threads": torch.get_num_threads()},
        }
        self.units: dict[str, Any] = {}
        if path.exists():
            before = read_results(path)
            if before["card"]["setup"] != json.loads(json.dumps(setup)):
                raise SystemExit(f"{path} was measured with other options: give another --out, or delete it.")
            self.units = before["units"]

    def add(self, name: str, unit: dict[str, Any]) -> None:
        """Write a unit."""
        self.units[name] = unit
        write_results(self._path, {"card": self._card, "units": self.units})
