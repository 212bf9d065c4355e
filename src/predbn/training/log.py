"""What happened in each epoch: a CSV file a run, and TensorBoard where it is asked for."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from predbn.common import TrainingError, finish, part_of

__all__ = ["COLUMNS", "Log"]

COLUMNS = ("epoch", "learning_rate", "loss", "accuracy", "validation_loss", "validation_accuracy", "seconds")


class Log:
    """Appends a row an epoch. Rows of epochs that are run again, those after the first `done`, are dropped first."""

    def __init__(
        self, path: Path, *, done: int = 0, tensorboard: bool = False, columns: tuple[str, ...] = COLUMNS
    ) -> None:
        self.path, self.columns = path, columns
        rows = [row for row in self.rows(path) if int(row["epoch"]) <= done]
        path.parent.mkdir(parents=True, exist_ok=True)
        with part_of(path).open("w", newline="") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)
        finish(path)
        self._board = _board(path.with_suffix(""), done + 1) if tensorboard else None

    @staticmethod
    def rows(path: Path) -> list[dict[str, str]]:
        """The rows of a log, none where there is no file; a row that was cut off is left out."""
        if not path.exists():
            return []
        with path.open(newline="") as file:
            return [row for row in csv.DictReader(file) if None not in row.values()]

    def append(self, row: dict[str, float]) -> None:
        """Add an epoch."""
        with self.path.open("a", newline="") as file:
            csv.DictWriter(file, self.columns).writerow({name: _short(row[name]) for name in self.columns})
        if self._board is not None:
            for name in self.columns[1:]:
                self._board.add_scalar(name, row[name], row["epoch"])
            self._board.flush()

    def close(self) -> None:
        """Nothing more will be added."""
        if self._board is not None:
            self._board.close()


def _short(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def _board(folder: Path, first: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise TrainingError(
            "TensorBoard is not installed: run `pip install tensorboard`, or leave --tensorboard out."
        ) from None
    return SummaryWriter(str(folder), purge_step=first)
