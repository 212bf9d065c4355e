"""A results file that grows unit by unit, so that a run that was interrupted continues where it stopped."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from predbn.common import git_commit, hardware_of, package_versions, write_text

RESULTS = Path(__file__).resolve().parents[2] / "results"


class ResultsFile:
    """Units by name, and a card. Units that were measured with another setup are never mixed with new ones."""

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
            before = json.loads(path.read_text(encoding="utf-8"))
            if before["card"]["setup"] != json.loads(json.dumps(setup)):
                raise SystemExit(f"{path} was measured with other options: give another --out, or delete it.")
            self.units = before["units"]

    def add(self, name: str, unit: dict[str, Any]) -> None:
        """Write a unit at once."""
        self.units[name] = unit
        self._path.parent.mkdir(parents=True, exist_ok=True)
        content = {"card": self._card, "units": self.units}
        write_text(self._path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
