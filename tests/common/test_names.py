"""Specs are turned into objects and back, and an error says what is wrong with a spec."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predbn.common import find_by_name, format_spec, short_spec


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


def find(spec, **arguments):
    classes = {"circle": Circle, "point": Point}
    return find_by_name("shape", Shape, classes, spec, arguments, example="circle(radius=1)", error=Wrong)


@given(st.floats(allow_nan=False), st.text(max_size=5))
def test_a_formatted_spec_gives_an_equal_object(radius, colour):
    circle = Circle(radius, colour)
    if abs(radius) == float("inf") or "=inf" in colour:
        return
    assert find(format_spec("circle", circle)) == circle
    assert find(short_spec("circle", circle)) == circle


def test_infinity_is_read():
    assert find("circle(radius=inf)") == Circle(float("inf"))


def test_a_name_a_name_with_arguments_or_an_object():
    assert find("point") == find(Point()) == Point()
    assert find("circle", radius=2) == find("circle(radius=2)") == find(" circle(radius=3)", radius=2) == Circle(2)


@pytest.mark.parametrize(
    ("spec", "arguments", "message"),
    [
        ("circel", {}, r"unknown shape 'circel' \(did you mean 'circle'\?\); choose one of circle, point"),
        ("circle", {}, "shape 'circle' needs its argument 'radius'; write it as in"),
        ("circle", {"size": 1}, "shape 'circle' has no argument 'size'; it takes radius, colour"),
        ("point(x=1)", {}, "it takes no arguments"),
        ("circle(1)", {}, r"cannot read shape 'circle\(1\)'; .* such as 'circle\(radius=1\)'"),
        ("circle(radius=open)", {}, "cannot read shape"),
        ("circle(", {}, "cannot read shape"),
        ("circle(**{'radius': 3})", {}, "cannot"),
        ("circle(radius=3, radius=4)", {}, "cannot"),
        (Point(), {"radius": 1}, "arguments radius were given beside the shape object"),
        (None, {}, "a shape is a name or a Shape object, not NoneType"),
    ],
)
def test_an_error_says_what_is_wrong(spec, arguments, message):
    with pytest.raises(Wrong, match=message):
        find(spec, **arguments)


def test_a_short_spec_has_only_what_is_not_the_default():
    assert short_spec("circle", Circle(1.0)) == "circle(radius=1.0)"
    assert short_spec("circle", Circle(1.0, "blue")) == "circle(radius=1.0, colour='blue')"
    assert short_spec("point", Point()) == "point"
