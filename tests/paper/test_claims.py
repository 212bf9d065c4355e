"""Verdicts from intervals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predbn.common import NotMeasured
from predbn.metrics import Interval
from predbn.paper.claims import Claim, Measurement, Verdict, check_claim


def measurement(low: float, high: float, side: str = "above", bound: float = 0.0, count: int = 19) -> Measurement:
    return Measurement("x", Interval((low + high) / 2, low, high, 0.95), side, bound, count, "corruptions")


@pytest.mark.parametrize(
    ("low", "high", "side", "verdict"),
    [
        (0.1, 0.2, "above", Verdict.HOLDS),
        (0.1, 0.2, "below", Verdict.FAILS),
        (-0.2, -0.1, "above", Verdict.FAILS),
        (-0.2, -0.1, "below", Verdict.HOLDS),
        (-0.1, 0.1, "above", Verdict.UNCLEAR),
        (-0.1, 0.1, "below", Verdict.UNCLEAR),
        (0.0, 0.1, "above", Verdict.UNCLEAR),
    ],
)
def test_the_whole_interval_decides(low, high, side, verdict):
    assert measurement(low, high, side).verdict is verdict


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(-1, 1), st.sampled_from(["above", "below"]))
def test_the_two_sides_are_opposites(low, width, bound, side):
    other = {"above": "below", "below": "above"}[side]
    opposite = {Verdict.HOLDS: Verdict.FAILS, Verdict.FAILS: Verdict.HOLDS, Verdict.UNCLEAR: Verdict.UNCLEAR}
    here, there = (measurement(low, low + width, each, bound).verdict for each in (side, other))
    assert there is opposite[here]


@pytest.mark.parametrize("count", [1, 2])
def test_one_or_two_values_prove_nothing(count):
    assert measurement(0.1, 0.1, count=count).verdict is Verdict.UNCLEAR


@pytest.mark.parametrize(
    ("intervals", "verdict"),
    [
        ([(0.1, 0.2), (0.3, 0.4)], Verdict.HOLDS),
        ([(0.1, 0.2), (-0.3, 0.4)], Verdict.UNCLEAR),
        ([(-0.1, 0.2), (-0.4, -0.3)], Verdict.FAILS),
    ],
)
def test_a_claim_is_as_good_as_its_worst_measurement(intervals, verdict, nothing):
    claim = Claim("X.1", "figure 0", "s", "r", lambda runs: [measurement(*each) for each in intervals])
    assert check_claim(claim, nothing).verdict is verdict


def test_what_is_not_measured_says_why(nothing):
    def measure(runs):
        raise NotMeasured("nobody looked")

    found = check_claim(Claim("X.1", "figure 0", "s", "r", measure), nothing)
    assert (found.verdict, found.why, found.measurements) == (Verdict.UNMEASURED, "nobody looked", ())


def test_numbers_as_text():
    shown = Measurement(
        "accuracy, points", Interval(-0.018, -0.025, -0.005, 0.95), "above", -0.02, 10, "networks", 100, 1
    )
    assert (shown.value, shown.bounds, shown.required) == ("−1.8", "−2.5 to −0.5", "above −2")
    assert [shown.format(value) for value in (-0.0001, 0.0001, 0.001)] == ["0.0", "0.0", "+0.1"]
    assert shown.number == "10 networks"
    assert measurement(0.1, 0.2, count=1).number == "1 corruption"
    assert measurement(float("-inf"), float("inf")).bounds == "no interval"
