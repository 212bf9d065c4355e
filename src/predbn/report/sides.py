"""The sides of a diagnosis as series: what each is called and what it looks like."""

from __future__ import annotations

from collections.abc import Iterator

from predbn.diagnostics import Diagnosis, Profile

from .looks import GREY, HUES, Look

__all__ = ["look_of", "sides"]

_COLOURS = {
    ("reference", True): (GREY, True),
    ("shifted", True): (HUES[1], False),
    ("shifted", False): (HUES[0], False),
    ("reference", False): (HUES[4], True),
}


def look_of(data: str, strategy: str) -> Look:
    """Orange is the shift, blue what the strategy makes of it; what is drawn of the reference is hollow."""
    colour, hollow = _COLOURS[data, strategy == "train"]
    return Look(f"{data} · {strategy}", colour, hollow)


def sides(diagnosis: Diagnosis, *, settled: bool = False) -> Iterator[tuple[Look, Profile]]:
    """The reference, the shifted data and what the strategy makes of it; with `settled` also of the reference."""
    for data, strategy, profile in diagnosis.sides():
        if settled or (data, strategy == "train") != ("reference", False):
            yield look_of(data, strategy), profile
