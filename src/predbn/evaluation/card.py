"""The run card: what is needed to repeat a run, and to know whether two runs used the same models and data."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
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
            "metrics": "summed as integers: exact, in any order",
        },
        **({"fits": [fit._asdict() for fit in fits]} if fits else {}),
        "software": {"commit": git_commit(), "python": platform.python_version(), **package_versions()},
        "hardware": dict(hardware),
    }


def check_same(folder: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise an error if results would be added to a folder whose results have another context; both are from JSON."""
    # A folder may hold results of further models, and of plans without validation data.
    optional = {"validation", *(f"{part}.{name}" for part in ("models", "ensembles") for name in now[part])}
    for name, old, new in _differences(before, now):
        if old is None:
            if name in optional:
                continue
            raise EvaluationError(
                f"{folder} has a card.json that does not state {name}: restore it, or choose another --out."
            )
        raise EvaluationError(
            f"{folder} has the results of another evaluation ({_difference(name, old, new)}): choose another folder "
            f"with --out, or delete {folder} to start again."
        )


def joined(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The context of all results in a folder: that of an earlier plan, and what this one adds."""
    both = {name: {**before.get(name, {}), **now[name]} for name in ("models", "ensembles")}
    return {**now, **both, **({"validation": before["validation"]} if "validation" in before else {})}


def _differences(before: Any, now: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The entries of `now` that differ in `before`: name and the two values, None for one that is missing."""
    if not (isinstance(before, Mapping) and isinstance(now, Mapping)):
        if before != now:
            yield name, before, now
        return
    for key in now:
        if key != "card":
            yield from _differences(before.get(key), now[key], f"{name}.{key}" if name else key)


def _difference(name: str, old: Any, new: Any) -> str:
    """One of `_differences` in words."""
    part, _, rest = name.partition(".")
    if "sha256" in rest:
        return f"{rest.removesuffix('.sha256')} has other weights" if part == "models" else f"the {part} has changed"
    words = {"data.name": "data", "data.images": "number of images", "data.rows": "number of rows"}
    what = rest if part == "models" else words.get(name, name)
    return f"{what}: {_short(old)} before, {_short(new)} now"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:16]}…"
