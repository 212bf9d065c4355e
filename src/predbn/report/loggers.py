"""The results of a run in TensorBoard, MLflow or Weights & Biases: a run for each series, a step for each severity.

Step 0 is clean data, steps 1 to 5 are means over the corruptions of a severity. For data that is compared with a
reference, step 0 is the reference and step 1 the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from predbn.common import ReportError, needs_extra
from predbn.evaluation import Results

from .frames import add_series

_SETTINGS = ["model", "method", "strategy", "batch_size", "order", "seed"]


class _Series(NamedTuple):
    """What is logged as one run: its name, its settings, and (severity, {metric: value})."""

    name: str
    settings: dict[str, Any]
    steps: list[tuple[int, dict[str, float]]]


def log_results(target: str, results: Results) -> None:
    """Log results to `tensorboard:FOLDER`, `mlflow:EXPERIMENT` or `wandb:PROJECT`."""
    log, where = find_logger(target)
    log(where, list(_series(results)))


def find_logger(target: str) -> tuple[Callable[[str, list[_Series]], None], str]:
    """The logger that `target` names, whose package is installed, and where it logs to."""
    kind, _, where = target.partition(":")
    if kind not in _LOGGERS or not where:
        raise ReportError(f"{target!r} is no logger: write tensorboard:FOLDER, mlflow:EXPERIMENT or wandb:PROJECT.")
    with needs_extra(kind):
        __import__("torch.utils.tensorboard" if kind == "tensorboard" else kind)
    return _LOGGERS[kind], where


def _series(results: Results) -> Iterator[_Series]:
    named = add_series(results.frame.assign(network=results.frame["model"]))
    for keys, rows in named.groupby(["series", *_SETTINGS], sort=False):
        means = rows.groupby(["severity", "metric"])["value"].mean().unstack()
        steps = [
            (severity, {str(name): float(value) for name, value in row.items() if value == value})
            for severity, row in zip(means.index.tolist(), means.to_dict("records"), strict=True)
        ]
        settings = dict(zip(_SETTINGS, keys[1:], strict=True))
        yield _Series(str(keys[0]), settings, steps)


def _log_to_tensorboard(folder: str, logged: list[_Series]) -> None:
    from torch.utils.tensorboard import SummaryWriter

    for series in logged:
        with SummaryWriter(f"{folder}/{series.name}") as writer:
            for severity, metrics in series.steps:
                for name, value in metrics.items():
                    writer.add_scalar(name, value, severity)


def _log_to_mlflow(experiment: str, logged: list[_Series]) -> None:
    import mlflow

    mlflow.set_experiment(experiment)
    for series in logged:
        with mlflow.start_run(run_name=series.name):
            mlflow.log_params(series.settings)
            for severity, metrics in series.steps:
                mlflow.log_metrics(metrics, step=severity)


def _log_to_wandb(project: str, logged: list[_Series]) -> None:
    import wandb

    for series in logged:
        with wandb.init(project=project, name=series.name, config=series.settings) as run:
            for severity, metrics in series.steps:
                run.log(metrics, step=severity)


_LOGGERS = {"tensorboard": _log_to_tensorboard, "mlflow": _log_to_mlflow, "wandb": _log_to_wandb}
