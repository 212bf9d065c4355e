"""Verdicts in words, on rows made by hand and on shifts of known size."""

from __future__ import annotations

import pytest

from predbn.diagnostics import Shift, diagnose
from predbn.diagnostics.verdict import is_shifted, recovered

from .models import one_layer
from .test_diagnose import data


def row(apart: float, noise: float = 0.02, distance: float | None = None) -> Shift:
    distance = apart if distance is None else distance
    return Shift("bn", "batch norm", 1, 8, "shifted", "train", distance, apart, noise, outside=0.0, divergence=0.0)


@pytest.mark.parametrize(
    ("distance", "noise", "wanted"), [(0.09, 0.001, False), (0.11, 0.001, True), (0.29, 0.1, False), (0.31, 0.1, True)]
)
def test_more_than_chance_and_more_than_a_tenth(distance, noise, wanted):
    assert is_shifted(row(distance, noise)) is wanted


def test_the_part_of_the_way_back():
    before = [row(1.02), row(0.52)]
    assert recovered(before, [row(0.02), row(0.02)]) == pytest.approx(1)
    assert recovered(before, [row(0.27), row(0.145)]) == pytest.approx(0.75)
    assert recovered(before, before) == pytest.approx(0)
    assert recovered(before, [row(2.02), row(1.02)]) == pytest.approx(-1)
    assert recovered(before, [row(0.0), row(0.0)]) == 1
    assert recovered([row(0.01)], [row(0.5)]) == 0


def test_a_shift_that_is_brought_back():
    found = diagnose(one_layer(), data(1000, 2.0, 1), data(1000, 5.0, 2)).sentences()
    assert found[0].startswith("The data has shifted: 1 of 1 batch norm layers moved away from the reference, by 4.0")
    assert found[1] == f"It moved most in {found[1].split(' in ')[1].split(';')[0]}; going through the network, it " + (
        "first shows at the very first layer."
    )
    assert found[2].startswith("Prediction-time BN brings it back (")
    assert found[-1].startswith("Mean confidence is ")


def test_no_shift():
    found = diagnose(one_layer(), data(1000, 2.0, 1), data(1000, 2.0, 2)).sentences()
    assert found[0].startswith("No shift worth the name: none of the 1 batch norm layers moved away")
    assert "nothing to bring back" in found[1]
    assert not any("moves even the reference" in sentence for sentence in found)


def test_stored_statistics_that_are_not_the_references():
    """The reference has mean 3.5 where the stored statistics say 2: the batch's statistics move it by 2 of its sd."""
    found = diagnose(one_layer(), data(1000, 3.5, 1), data(1000, 5.0, 2)).sentences()
    assert any("moves even the reference, by 2.0" in sentence for sentence in found)
    assert any("brings it back (" in sentence for sentence in found)


def test_small_batches_are_warned_of():
    small = [part for x in data(400, 5.0, 2) for part in x.split(10)]
    found = diagnose(one_layer(), data(400, 2.0, 1), small)
    assert found.sentences()[-1].startswith("Batches of 10 give noisy statistics")
    other = diagnose(one_layer(), data(400, 2.0, 1), small, strategy="prior")
    assert other.sentences()[2].startswith("The strategy prior(N=16) brings ")
