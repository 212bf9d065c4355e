"""What is written is read again, and what cannot be read is said."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predbn.common.names import find_by_name, written


class Wrong(ValueError):
    pass


@dataclass(frozen=True)
class Shape:
    pass


@dataclass(frozen=True)
class Circle(Shape):
    radius: float
    colour: str = "red"


@dataclass(frozen=True)
class Point(Shape):
    pass


def find(given, **arguments):
    known = {"circle": Circle, "point": Point}
    return find_by_name("shape", Shape, known, given, arguments, example="circle(radius=1)", error=Wrong)


@given(st.floats(allow_nan=False), st.text(max_size=5))
def test_what_is_written_is_read_again(radius, colour):
    circle = Circle(radius, colour)
    if abs(radius) == float("inf") or "=inf" in colour:
        return
    assert find(written("circle", circle)) == circle


def test_infinity_is_read():
    assert find("circle(radius=inf)") == Circle(float("inf"))


def test_a_name_arguments_or_an_object():
    assert find("point") == find(Point()) == Point()
    assert find("circle", radius=2) == find("circle(radius=2)") == find(" circle(radius=3)", radius=2) == Circle(2)


@pytest.mark.parametrize(
    ("given", "arguments", "message"),
    [
        ("circel", {}, r"unknown shape 'circel' \(did you mean 'circle'\?\); known are circle, point"),
        ("circle", {}, "shape 'circle' needs its argument 'radius'; write it as in"),
        ("circle", {"size": 1}, "shape 'circle' has no argument 'size'; it takes radius, colour"),
        ("point(x=1)", {}, "it takes no arguments"),
        ("circle(1)", {}, r"cannot read shape 'circle\(1\)'; .* such as 'circle\(radius=1\)'"),
        ("circle(radius=open)", {}, "cannot read shape"),
        ("circle(", {}, "cannot read shape"),
        (Point(), {"radius": 1}, "arguments radius were given beside the shape object"),
        (None, {}, "a shape is a name or a Shape object, not NoneType"),
    ],
)
def test_says_what_is_wrong(given, arguments, message):
    with pytest.raises(Wrong, match=message):
        find(given, **arguments)
