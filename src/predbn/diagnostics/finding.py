"""One finding of an examination: what is wrong, in which layers, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Severity = Literal["problem", "note"]
"""A problem needs something done; a note is worth knowing."""

_BREAKING = {"never updated", "not finite", "exploded", "no variance", "stale", "small batches", "wrong eps"}
_MAX_NAMED = 3


@dataclass(frozen=True)
class Finding:
    """What is wrong, in one sentence, and what to do about it, in another.

    code      a short name that stays the same, for programs, such as "stale"
    severity  "problem" or "note"
    layers    the batch norm layers that it is about: in the order of the calls if data was given, otherwise in the
              order of registration; empty if it is about the data as a whole
    """

    code: str
    severity: Severity
    layers: tuple[str, ...]
    sentence: str
    remedy: str

    @property
    def is_problem(self) -> bool:
        return self.severity == "problem"

    @property
    def breaks_predictions(self) -> bool:
        """Whether the stored statistics are wrong, so that no advice can rest on predictions with them."""
        return self.is_problem and self.code in _BREAKING

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"layers": list(self.layers)}


def format_names(names: Sequence[str], total: int | None = None) -> str:
    """Layers in a sentence: "bn1, bn2, bn3 and 4 more", or "all 7 batch norm layers" if that is the `total`."""
    if total is not None and len(names) == total > 1:
        return f"all {total} batch norm layers"
    more = [f"{len(names) - _MAX_NAMED} more"] if len(names) > _MAX_NAMED else []
    *first, last = [*names[:_MAX_NAMED], *more]
    return f"{', '.join(first)} and {last}" if first else last
