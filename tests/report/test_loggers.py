"""Results in TensorBoard, MLflow and W&B, read back with their own readers."""

import json
import struct

import pandas as pd
import pytest

from predbn.common import MissingPackageError, ReportError
from predbn.evaluation import Results
from predbn.report import find_logger, log_results

VALUES = {("train", "clean", 0): 0.9, ("train", "fog", 3): 0.5, ("train", "snow", 3): 0.3, ("batch", "clean", 0): 0.8}


@pytest.fixture
def results():
    fixed = {"model": "m", "method": "vanilla", "batch_size": "100", "order": "shuffled", "seed": 0}
    rows = [
        {
            **fixed,
            "strategy": strategy,
            "corruption": corruption,
            "severity": severity,
            "metric": metric,
            "value": value,
        }
        for (strategy, corruption, severity), value in VALUES.items()
        for metric in ("accuracy", "ece")
    ]
    return Results(pd.DataFrame(rows), pd.DataFrame())


def test_tensorboard_has_a_run_for_each_series_and_a_step_for_each_severity(results, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log_results(f"tensorboard:{tmp_path}", results)
    events = EventAccumulator(str(tmp_path / "train")).Reload()
    assert [(event.step, round(event.value, 6)) for event in events.Scalars("accuracy")] == [(0, 0.9), (3, 0.4)]
    assert sorted(events.Tags()["scalars"]) == ["accuracy", "ece"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["batch", "train"]


def test_mlflow_has_settings_and_metrics(results, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(tmp_path.as_uri())
    log_results("mlflow:shift", results)
    runs = {run.info.run_name: run for run in mlflow.search_runs(experiment_names=["shift"], output_format="list")}
    assert set(runs) == {"train", "batch"}
    assert runs["train"].data.params["strategy"] == "train"
    history = mlflow.MlflowClient().get_metric_history(runs["train"].info.run_id, "accuracy")
    assert [(metric.step, metric.value) for metric in history] == [(0, 0.9), (3, pytest.approx(0.4))]


def records_of_wandb(path):
    """The records of a run that W&B has kept offline: after 7 bytes, each with checksum, length and kind before it."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, position = path.read_bytes(), 7
    while position < len(content):
        _, size, _ = struct.unpack_from("<IHB", content, position)
        yield Record.FromString(content[position + 7 : position + 7 + size])
        position += 7 + size


def test_wandb_keeps_the_runs_offline(results, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    for name, value in {"MODE": "offline", "DIR": str(tmp_path), "SILENT": "true"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    log_results("wandb:shift", results)
    wandb.teardown()
    logged = {}
    for path in tmp_path.glob("wandb/offline-run-*/*.wandb"):
        records = list(records_of_wandb(path))
        (name,) = {record.run.display_name for record in records} - {""}
        items = [
            {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            for record in records
        ]
        logged[name] = [(row["_step"], round(row["accuracy"], 6)) for row in items if row]
    assert logged == {"train": [(0, 0.9), (3, 0.4)], "batch": [(0, 0.8)]}


@pytest.mark.parametrize("target", ["tensorbord:x", "mlflow", "wandb:", ""])
def test_an_unknown_logger_is_an_error(target):
    with pytest.raises(ReportError, match="write tensorboard:FOLDER, mlflow:EXPERIMENT or wandb:PROJECT"):
        find_logger(target)


def test_a_missing_logger_names_its_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    with pytest.raises(MissingPackageError, match=r'pip install "predbn\[wandb\]"'):
        find_logger("wandb:project")
