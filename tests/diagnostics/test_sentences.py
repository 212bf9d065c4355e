"""The sentences of a diagnosis, on rows made by hand and on shifts of known size."""

from __future__ import annotations

import re

import pytest

from predbn.diagnostics import Shift, diagnose, has_shifted
from predbn.diagnostics.diagnosis import recovered_share

from .models import one_layer
from .test_diagnose import data


def row(apart: float, noise: float = 0.02, distance: float | None = None) -> Shift:
    distance = apart if distance is None else distance
    return Shift("bn", "batch norm", 1, 8, "shifted", "train", distance, apart, noise, outside=0.0, divergence=0.0)


@pytest.mark.parametrize(
    ("distance", "noise", "expected"),
    [(0.09, 0.001, False), (0.11, 0.001, True), (0.29, 0.1, False), (0.31, 0.1, True)],
)
def test_more_than_chance_and_more_than_a_tenth(distance, noise, expected):
    assert has_shifted(row(distance, noise)) is expected


def test_the_share_of_a_shift_that_is_undone():
    before = [row(1.02), row(0.52)]
    assert recovered_share(before, [row(0.02), row(0.02)]) == pytest.approx(1)
    assert recovered_share(before, [row(0.27), row(0.145)]) == pytest.approx(0.75)
    assert recovered_share(before, before) == pytest.approx(0)
    assert recovered_share(before, [row(2.02), row(1.02)]) == pytest.approx(-1)
    assert recovered_share(before, [row(0.0), row(0.0)]) == 1
    assert recovered_share([row(0.01)], [row(0.5)]) == 0


def test_a_shift_that_is_undone():
    first, second, third, *_, last = diagnose(one_layer(), data(1000, 2.0, 1), data(1000, 5.0, 2)).sentences()
    assert first.startswith("The data has shifted: 1 of 1 batch norm layers moved away from the reference, by 4.0")
    assert re.fullmatch(
        r"It moved most in bn \(4.0\d\); going through the network, it first shows at the very first layer\.", second
    )
    assert third.startswith("Prediction-time BN brings it back (")
    assert last.startswith("Mean confidence is ")


def test_no_shift():
    sentences = diagnose(one_layer(), data(1000, 2.0, 1), data(1000, 2.0, 2)).sentences()
    assert sentences[0].startswith("No shift worth the name: none of the 1 batch norm layers moved away")
    assert "nothing to bring back" in sentences[1]
    assert not any("moves even the reference" in sentence for sentence in sentences)


def test_stored_statistics_that_differ_from_the_reference():
    """The reference has mean 3.5 but the stored mean is 2: the batch's statistics move it by 2 of its deviations."""
    sentences = diagnose(one_layer(), data(1000, 3.5, 1), data(1000, 5.0, 2)).sentences()
    assert any("moves even the reference, by 2.0" in sentence for sentence in sentences)
    assert any("brings it back (" in sentence for sentence in sentences)


def test_small_batches_give_a_warning():
    small = [part for x in data(400, 5.0, 2) for part in x.split(10)]
    diagnosis = diagnose(one_layer(), data(400, 2.0, 1), small)
    assert diagnosis.sentences()[-1].startswith("Batches of 10 give noisy statistics")
    other = diagnose(one_layer(), data(400, 2.0, 1), small, strategy="prior")
    assert other.sentences()[2].startswith("The strategy prior(N=16) brings ")
