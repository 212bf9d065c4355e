from __future__ import annotations

import sys

import pandas as pd
import pytest

from predbn.training import TrainingError
from predbn.training.log import COLUMNS, Log


def row(epoch: int) -> dict[str, float]:
    return {name: epoch if name == "epoch" else epoch + 0.123456789 for name in COLUMNS}


def test_a_row_an_epoch(tmp_path):
    log = Log(tmp_path / "new" / "0.csv")
    for epoch in (1, 2, 3):
        log.append(row(epoch))
    found = pd.read_csv(log.path)
    assert tuple(found.columns) == COLUMNS
    assert found["epoch"].tolist() == [1, 2, 3]
    assert found["loss"].tolist() == pytest.approx([1.123456789, 2.123456789, 3.123456789], rel=1e-5)


def test_rows_that_are_run_again_are_dropped(tmp_path):
    log = Log(tmp_path / "0.csv")
    for epoch in range(1, 6):
        log.append(row(epoch))
    log = Log(tmp_path / "0.csv", done=3)
    log.append(row(4))
    assert pd.read_csv(log.path)["epoch"].tolist() == [1, 2, 3, 4]
    assert [path.name for path in tmp_path.iterdir()] == ["0.csv"]


def test_a_row_that_was_cut_off_is_dropped(tmp_path):
    log = Log(tmp_path / "0.csv")
    log.append(row(1))
    with log.path.open("a") as file:
        file.write("2,0.1,0.")
    assert [r["epoch"] for r in Log.rows(log.path)] == ["1"]
    Log(log.path, done=2).append(row(2))
    assert pd.read_csv(log.path)["epoch"].tolist() == [1, 2]


def test_no_log_has_no_rows(tmp_path):
    assert Log.rows(tmp_path / "absent.csv") == []


def test_tensorboard_reads_what_was_written(tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = Log(tmp_path / "0.csv", tensorboard=True)
    for epoch in (1, 2, 3):
        log.append(row(epoch))
    log.close()
    log = Log(tmp_path / "0.csv", done=2, tensorboard=True)
    log.append(row(3))
    events = EventAccumulator(str(tmp_path / "0")).Reload()
    assert set(events.Tags()["scalars"]) == set(COLUMNS[1:])
    assert [event.step for event in events.Scalars("loss")] == [1, 2, 3]
    assert events.Scalars("accuracy")[2].value == pytest.approx(3.123456789)
    log.close()


def test_without_tensorboard(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(TrainingError, match="TensorBoard is not installed: run `pip install tensorboard`"):
        Log(tmp_path / "0.csv", tensorboard=True)
