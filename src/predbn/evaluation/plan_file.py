"""Plans as TOML files."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from predbn.common import EvaluationError, PredbnError, parse_toml
from predbn.models import Preprocessing

from .plan import Model, Plan


def read_plan(path: str | Path) -> Plan:
    """The plan in a TOML file: the fields of `Plan` by name; a model is a reference, or a table with the fields of
    `Model`."""
    path = Path(path)
    try:
        entries = parse_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EvaluationError(f"the plan {path} cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:
        raise EvaluationError(f"the plan {path} is not TOML: {error}.") from None
    known = [field.name for field in fields(Plan)]
    unknown = [name for name in entries if name not in known]
    if unknown:
        raise EvaluationError(f"the plan {path} has the unknown entry {unknown[0]!r}: use {', '.join(known)}.")
    if "models" not in entries:
        raise EvaluationError(f"the plan {path} names no models: write models = ['zoo:resnet20-cifar10/batch/0'].")
    models = entries["models"] if isinstance(entries["models"], list) else [entries["models"]]
    try:
        return Plan(**{**entries, "models": [_model(model) for model in models]})
    except PredbnError as error:
        raise EvaluationError(f"the plan {path} cannot be used: {error}") from None


def write_plan(plan: Plan) -> str:
    """The plan as TOML. `read_plan` reads it as the same plan."""
    lines = []
    for field in fields(plan):
        value = getattr(plan, field.name)
        if field.name == "models":
            value = [_model_entry(model) for model in value]
        if value is not None:
            lines.append(f"{field.name} = {_toml(value)}\n")
    return "".join(lines)


def _model(entry: Any) -> Model:
    if isinstance(entry, str):
        return Model(entry)
    known = {"reference", "weights", "preprocessing"}
    if not isinstance(entry, dict) or "reference" not in entry or not set(entry) <= known:
        raise EvaluationError(
            f"expected a model to be a reference or {{reference, weights, preprocessing}}, but got {entry!r}."
        )
    preprocessing = entry.get("preprocessing")
    if preprocessing is not None:
        preprocessing = _preprocessing(preprocessing)
    return Model(entry["reference"], entry.get("weights"), preprocessing)


def _preprocessing(entry: Any) -> Preprocessing:
    known = [field.name for field in fields(Preprocessing)]
    if not isinstance(entry, dict) or not {"size", "mean", "std"} <= set(entry) <= set(known):
        raise EvaluationError(f"expected the preprocessing to be a table of {', '.join(known)}, but got {entry!r}.")
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}
    return Preprocessing(**values)


def _model_entry(model: Model) -> Any:
    if model.weights is None and model.preprocessing is None:
        return model.reference
    entry: dict[str, Any] = {"reference": model.reference}
    if model.weights is not None:
        entry["weights"] = model.weights
    if model.preprocessing is not None:
        entry["preprocessing"] = {k: v for k, v in model.preprocessing.describe().items() if v is not None}
    return entry


def _toml(value: Any) -> str:
    """Write a value as TOML, which the standard library only reads. Except for tables it is written like JSON."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_toml(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
