"""The run card: what one needs to repeat a run, and to know whether two runs used the same models and data."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from predbn.common import EvaluationError, git_commit, package_versions

from .plan import Plan
from .splits import attack_of
from .units import Fit

_CALIBRATION = (
    "auto has seen the clean validation data, 5,000 images or rows at most, drawn with seed 0, without labels"
)
_ATTACK = (
    "the last images of each batch are the attacker's, at least one: they are optimised from grey with the labels and "
    "the gradients through network and statistics, and not scored; population has collected its statistics before"
)
_PRECISIONS = {
    "fp32": "fp32, TF32 off",
    "tf32": "fp32, TF32 on",
    "bf16": "convolutions and products in bfloat16",
    "fp16": "convolutions and products in float16",
}


def make_card(plan: Plan, context: Mapping[str, Any], hardware: Mapping[str, Any], fits: list[Fit]) -> dict[str, Any]:
    """The card as plain data."""
    return {
        **context,
        "plan": {name: value for name, value in asdict(plan).items() if name != "models"},
        "batches": {
            "what": "consecutive images of the stream; a batch's statistics are those of its own images",
            "last": "kept, though it may be smaller",
            "order": list(plan.orders),
            **({"attack": _ATTACK} if any(map(attack_of, plan.orders)) else {}),
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
        "software": {"commit": git_commit(), "python": platform.python_version(), **package_versions()},
        "hardware": dict(hardware),
    }


_STATED = ("data", "models", "precision", "device", "bins")
"""What every card states. The other entries of a context are optional, or newer than some cards."""


def check_same(folder: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise an error if results would be added to a folder whose results have another context; both are from JSON."""
    unstated = _first_unstated(before, now)
    if unstated is not None:
        raise EvaluationError(
            f"{folder} has a card.json that does not state {unstated}: restore it, or choose another --out."
        )
    difference = _first_difference(before, now)
    if difference is not None:
        name, old, new = difference
        raise EvaluationError(
            f"{folder} has results with {name} {_short(old)}, but this plan has {_short(new)}: choose another --out."
        )


def joined(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The context of all results in a folder: that of an earlier plan, and what this one adds."""
    both = {name: {**before.get(name, {}), **now[name]} for name in ("models", "ensembles")}
    return {**now, **both, **({"validation": before["validation"]} if "validation" in before else {})}


def _first_unstated(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """The first entry that a card must have and does not have, for example because it was edited."""
    missing = [name for name in _STATED if name not in before]
    missing += [f"data.{name}" for name in now["data"] if name not in before.get("data", {})]
    missing += [
        f"models.{name}.sha256"
        for name, model in before.get("models", {}).items()
        if not isinstance(model, Mapping) or "sha256" not in model
    ]
    return missing[0] if missing else None


def _first_difference(before: Any, now: Any, name: str = "") -> tuple[str, Any, Any] | None:
    """The first entry that both have with different values: its name and the two values."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in before:
            if key in now and key != "card":
                difference = _first_difference(before[key], now[key], f"{name}.{key}" if name else str(key))
                if difference is not None:
                    return difference
        return None
    return None if before == now else (name, before, now)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:16]}…"
