"""The run card: what one needs to repeat a run, and to know whether two runs are about the same thing."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from predbn.common import EvaluationError, commit, versions

from .plan import Plan
from .units import Fit

__all__ = ["check_same", "joined", "make_card", "to_json"]


def make_card(plan: Plan, context: Mapping[str, Any], hardware: Mapping[str, Any], fits: list[Fit]) -> dict[str, Any]:
    """The card as plain data."""
    return {
        **context,
        "plan": {name: value for name, value in asdict(plan).items() if name != "models"},
        "batches": {
            "what": "consecutive images of the stream; a batch's statistics are those of its own images",
            "last": "kept, though it may be smaller",
            "order": list(plan.orders),
            "reset": "what a strategy remembers is forgotten before every split, order and seed",
        },
        **({"calibration": _CALIBRATION} if plan.is_calibrated else {}),
        "numerics": {
            "precision": _PRECISIONS[plan.precision],
            "cpu": "every forward pass runs on one core, so that the number of cores changes nothing",
            "statistics": "fp32 or better, whatever the precision",
            "metrics": "summed as whole numbers: exact, in any order",
        },
        **({"fits": [fit._asdict() for fit in fits]} if fits else {}),
        "software": {"commit": commit(), "python": platform.python_version(), **versions()},
        "hardware": dict(hardware),
    }


_CALIBRATION = (
    "auto has seen the clean validation data, 5,000 images or rows at most, drawn with seed 0, without labels"
)

_PRECISIONS = {
    "fp32": "fp32, TF32 off",
    "tf32": "fp32, TF32 on",
    "bf16": "convolutions and products in bfloat16",
    "fp16": "convolutions and products in float16",
}


def check_same(folder: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to add to results that were computed from something else."""
    found = _difference(before, now)
    if found is not None:
        name, old, new = found
        raise EvaluationError(
            f"{folder} holds results with {name} {_short(old)}, but this plan has {_short(new)}: choose another --out."
        )


def joined(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The context of all results in a folder: that of an earlier plan with what this one adds."""
    both = {name: {**before.get(name, {}), **now[name]} for name in ("models", "ensembles")}
    return {**({"validation": before["validation"]} if "validation" in before else {}), **now, **both}


def to_json(card: Mapping[str, Any]) -> str:
    """The card as a file has it."""
    return json.dumps(card, indent=1, ensure_ascii=False) + "\n"


def _difference(before: Any, now: Any, name: str = "") -> tuple[str, Any, Any] | None:
    """The first thing that both have and that is not the same."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in before:
            if key in now and key != "card":
                found = _difference(before[key], now[key], f"{name}.{key}" if name else str(key))
                if found is not None:
                    return found
        return None
    return None if _plain(before) == _plain(now) else (name, before, now)


def _plain(value: Any) -> Any:
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:16]}…"
