"""Plans as TOML.

Reading needs tomllib, which Python has from 3.11 on; before that the package tomli stands in where it is installed.
"""

from __future__ import annotations

import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from predbn.common import EvaluationError
from predbn.models import Preprocessing

from .plan import Model, Plan

__all__ = ["read_plan", "write_plan"]


def read_plan(path: str | Path) -> Plan:
    """The plan of a TOML file: the fields of `Plan` by name; a model is a reference, or a table with the fields of
    `Model`."""
    path = Path(path)
    try:
        given = _loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EvaluationError(f"the plan {path} cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise EvaluationError(f"the plan {path} is no TOML: {error}.") from None
    known = [field.name for field in fields(Plan)]
    unknown = [name for name in given if name not in known]
    if unknown:
        raise EvaluationError(f"the plan {path} has {unknown[0]!r}, which no plan has: there are {', '.join(known)}.")
    if "models" not in given:
        raise EvaluationError(f"the plan {path} names no models: write models = ['zoo:resnet20-cifar10/batch/0'].")
    try:
        return Plan(**{**given, "models": [_model(model) for model in given["models"]]})
    except (TypeError, AttributeError) as error:
        raise EvaluationError(f"the plan {path} cannot be used: {error}.") from None


def write_plan(plan: Plan) -> str:
    """The plan as TOML that `read_plan` reads as the same plan."""
    lines = []
    for field in fields(plan):
        value = getattr(plan, field.name)
        if field.name == "models":
            value = [_table(model) for model in value]
        if value is not None:
            lines.append(f"{field.name} = {_written(value)}\n")
    return "".join(lines)


def _loads(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        try:
            import tomli as tomllib  # type: ignore[import-not-found]
        except ImportError:
            raise EvaluationError("reading a plan needs Python 3.11, or the package tomli beside 3.10.") from None
    found: dict[str, Any] = tomllib.loads(text)
    return found


def _model(given: Any) -> Model:
    if isinstance(given, str):
        return Model(given)
    if not isinstance(given, dict) or not set(given) <= {"reference", "weights", "preprocessing"}:
        raise EvaluationError(f"the model {given!r} is neither a reference nor {{reference, weights, preprocessing}}.")
    prepared = given.get("preprocessing")
    if prepared is not None:
        fields_of: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in prepared.items()}
        prepared = Preprocessing(**fields_of)
    return Model(given["reference"], given.get("weights"), prepared)


def _table(model: Model) -> Any:
    if model.weights is None and model.preprocessing is None:
        return model.reference
    table: dict[str, Any] = {"reference": model.reference}
    if model.weights is not None:
        table["weights"] = model.weights
    if model.preprocessing is not None:
        table["preprocessing"] = {k: v for k, v in model.preprocessing.describe().items() if v is not None}
    return table


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_written(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_written(each) for each in value) + "]"
    return json.dumps(value, ensure_ascii=False)
